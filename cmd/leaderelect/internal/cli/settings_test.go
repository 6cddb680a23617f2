package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// command is leaderelect with a command "probe" that has some of run's flags, and
// fails with what it was told.
func probe(t *testing.T, env map[string]string, file string, args ...string) (a *app, f *runFlags, code int, errOut string) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	if file != "" {
		path := filepath.Join(t.TempDir(), "settings")
		must(t, os.WriteFile(path, []byte(file), 0o644))
		args = append(args, "--config", path)
	}
	var out bytes.Buffer
	a = &app{in: strings.NewReader(""), out: io.Discard, errOut: &out}
	f = &runFlags{}
	root := a.root()
	c := &cobra.Command{Use: "probe", Args: cobra.MaximumNArgs(1), RunE: func(c *cobra.Command, args []string) error {
		f.entry.given(c)
		_, err := a.url(args)
		if err == nil {
			err = f.check(&a.common)
		}
		if err == nil {
			_, err = a.candidate()
		}
		return err
	}}
	f.flags(a, c)
	c.Flags().BoolVar(&f.once, "once", false, "")
	f.entry.flags(c, "")
	c.Flags().DurationVar(&f.hold, "hold", 0, "")
	c.Flags().BoolVar(&f.holdOnSuccess, "hold-on-success", false, "")
	root.AddCommand(c)
	root.SetArgs(append([]string{"probe"}, args...))
	return a, f, a.execute(t.Context(), root), out.String()
}

// A variable that is set and empty is as one that is not set, for each setting of each command: so a
// unit or a compose file names what it leaves open.
func TestEmptyVariables(t *testing.T) {
	all := 0
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			look(sub)
		}
		must(t, c.ParseFlags(nil))
		c.Flags().VisitAll(func(f *pflag.Flag) {
			t.Setenv(envPrefix+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), "")
			all++
		})
		if err := fromEnvironment(c); err != nil {
			t.Errorf("%s: %v", c.CommandPath(), err)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Changed {
				t.Errorf("%s: --%s was set", c.CommandPath(), f.Name)
			}
		})
	}
	look((&app{errOut: io.Discard}).root())
	if all < 200 {
		t.Errorf("only %d settings were looked at", all)
	}
	// With an empty token it is not within the command of another, so the expiry file is its own.
	env := map[string]string{"LEADERELECT_EXPIRY_FILE": "/run/ours", "LEADERELECT_STORE": "file:x", "LEADERELECT_TOKEN": "", "LEADERELECT_TERM": ""}
	if _, f, code, errOut := probe(t, env, ""); code != 0 || f.expiryFile != "/run/ours" {
		t.Errorf("%d %s %q", code, errOut, f.expiryFile)
	}
}

// The expiry file of a leader's command is none to write to for another leader
// within that command.
func TestInheritedExpiryFile(t *testing.T) {
	env := map[string]string{"LEADERELECT_EXPIRY_FILE": "/run/theirs", "LEADERELECT_STORE": "file:x"}
	if _, f, code, errOut := probe(t, env, ""); code != 0 || f.expiryFile != "/run/theirs" {
		t.Errorf("set by somebody: %d %s %q", code, errOut, f.expiryFile)
	}
	env["LEADERELECT_TOKEN"] = "7"
	if _, f, code, errOut := probe(t, env, ""); code != 0 || f.expiryFile != "" {
		t.Errorf("inherited: %d %s %q", code, errOut, f.expiryFile)
	}
	if _, f, code, errOut := probe(t, env, "", "--expiry-file", "own"); code != 0 || f.expiryFile != "own" {
		t.Errorf("asked for: %d %s %q", code, errOut, f.expiryFile)
	}
}

// Nor is the number of an outer group's shards that of a group within.
func TestInheritedShards(t *testing.T) {
	t.Setenv("LEADERELECT_SHARDS", "3")
	for token, want := range map[string]int{"": 3, "7": 0} {
		t.Setenv("LEADERELECT_TOKEN", token)
		c := &cobra.Command{}
		n := c.Flags().Int("shards", 0, "")
		if err := fromEnvironment(c); err != nil || *n != want {
			t.Errorf("with the token %q: %d shards, %v, want %d", token, *n, err, want)
		}
	}
}

// Each bad value is a usage error that names it.
func TestBadValues(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		file string
		args string
		want string
	}{
		{args: "--term 0", want: "--term is 0s, must be positive"},
		{args: "--term 5", want: "missing unit"},
		{args: "--skew -1s", want: "--skew is -1s, must not be negative"},
		{args: "--skew 8s", want: "at least twice --skew"},
		{args: "--poll -1s", want: "--poll is -1s"},
		{args: "--id *", want: "reserved"},
		{args: "--log-format xml", want: `--log-format is "xml", want text or json`},
		{args: "--log-level loud", want: `--log-level is "loud", want debug, info, warn or error`},
		{args: "--host-port :", want: `--host-port :: "" is not a port`},
		{args: "--host-port :no-such-service", want: "is not a port"},
		{args: "--host-port host", want: "want HOST:PORT"},
		{args: "--host-port host:https", want: "the port must be a number from 1 to 65535"},
		{args: "--host-port http://host:80", want: "want HOST:PORT"},
		{args: "--params @/no/such/file", want: "--params: open /no/such/file"},
		{args: "--grace -1s", want: "--grace is -1s, must not be negative"},
		{args: "--grace 5s", want: "has 4.375s at most; take that, or a --term of 17s"},
		{args: "--drain -1s", want: "--drain is -1s"},
		{args: "--once --wait -1s", want: "--wait is -1s"},
		{args: "--once --hold -1s", want: "--hold is -1s"},
		{args: "--once --wait 1m --hold 59s", want: "--hold is 59s, must be longer than --wait and --skew together (1m0s + 1s)"},
		{args: "--once --wait 1m --hold 61s", want: "--hold is 1m1s, must be longer"},
		{args: "--wait 1s", want: "for --once"},
		{args: "--once --hold-on-success", want: "--hold-on-success needs --hold"},
		{args: "--once --hold 12", want: "missing unit"},
		{args: "--once --hold 12ns", want: "--hold is 12ns: want 1ms or more, with its unit"},
		{args: "--term 15000ns", want: "--term is 15µs: want 1ms or more"},
		{file: "drain = 30ns", want: "--drain is 30ns"},
		{env: map[string]string{"LEADERELECT_POLL": "5ns"}, want: "--poll is 5ns"},
		{args: "--restart-delay 1ms", want: "--restart-delay is 1ms, must be at least 10ms"},
		{args: "--on-failure shrug", want: `--on-failure is "shrug", want restart, stepdown or exit`},
		{args: "--skew 0", want: "say --clocks shared instead"},
		{args: "--clocks unsynchronized --skew 0", want: "--skew is 0, must be positive"},
		{args: "--clocks shared --skew 1s", want: "--skew means nothing with --clocks shared"},
		{args: "--clocks shared", env: map[string]string{"LEADERELECT_SKEW": "1s"}, want: "--skew means nothing with --clocks shared"},
		{args: "--clocks right", want: "want synchronized, shared, unsynchronized, kernel"},
		{env: map[string]string{"LEADERELECT_CLOCKS": "right"}, want: `LEADERELECT_CLOCKS="right" in the environment`},
		{file: "clocks = right", want: "settings:1: clocks: "},
		{args: "--once --hold 5m --clocks unsynchronized", want: "--hold is not for --clocks unsynchronized"},
		{args: "--config /no/such/file", want: "--config: open /no/such/file"},
		{args: "--nonsense", want: "unknown flag"},
		{args: "a b", want: "accepts at most 1 arg"},
		{env: map[string]string{"LEADERELECT_STORE": ""}, want: "no store: give its URL, or set LEADERELECT_STORE"},
		{env: map[string]string{"LEADERELECT_ONCE": "perhaps"}, want: `LEADERELECT_ONCE="perhaps" in the environment`},
		{env: map[string]string{"LEADERELECT_RESTART_DELAY": "soon"}, want: `LEADERELECT_RESTART_DELAY="soon"`},
		{file: "term = soon", want: "settings:1: term: "},
		{file: "\n# x\nterm", want: "settings:3: want name = value"},
		{file: "id = a\nid = b", want: "settings:2: id is there twice"},
		{file: "colour = red", want: `settings:1: no command has a setting "colour"`},
		{file: "config = x", want: "settings:1: config cannot be set in a file"},
	} {
		t.Run(c.args+c.file, func(t *testing.T) {
			t.Setenv("LEADERELECT_STORE", "file:x")
			_, _, code, errOut := probe(t, c.env, c.file, strings.Fields(c.args)...)
			if code != exitUsage || !strings.Contains(errOut, c.want) {
				t.Errorf("exit code %d, %q; want 2, and %q", code, errOut, c.want)
			}
		})
	}
	// A setting of another command is that one's matter.
	if _, _, code, errOut := probe(t, nil, "store = file:x\ncandidates = 7\nlisten = :1\n"); code != 0 {
		t.Errorf("%d %s", code, errOut)
	}
}

// A file that has a secret, and that every user may read, is warned of.
func TestReadableSecrets(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such modes")
	}
	const warning = "every user of this machine may read this file"
	for text, secret := range map[string]bool{"store = redis://:hunter2@host/0\n": true, "store = redis://host/0\n": false} {
		_, _, code, errOut := probe(t, nil, text) // a file of mode 0644
		if code != 0 || strings.Contains(errOut, warning) != secret || strings.Contains(errOut, "hunter2") {
			t.Errorf("%s: %d %s", text, code, errOut)
		}
	}
	path := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(path, []byte("a secret of some length"), 0o644))
	for mode, warned := range map[os.FileMode]bool{0o644: true, 0o604: true, 0o640: false, 0o600: false} {
		must(t, os.Chmod(path, mode))
		var log bytes.Buffer
		a := &app{errOut: &log, common: common{logLevel: "info"}}
		if _, err := (&served{listen: ":0", secretFile: path}).check(a); err != nil {
			t.Fatal(err)
		}
		a.log().Flush(time.Minute)
		if strings.Contains(log.String(), warning) != warned {
			t.Errorf("%v: %q", mode, log.String())
		}
	}
}

// Lines may end as on Windows, and the last one need not end.
func TestLineEnds(t *testing.T) {
	const text = "# both\r\nid = a\r\n\r\nstore = file:x"
	if a, _, code, errOut := probe(t, nil, text); code != 0 || a.common.id != "a" || a.common.store != "file:x" {
		t.Errorf("%d %s: %+v", code, errOut, a.common)
	}
	path := filepath.Join(t.TempDir(), "names")
	err := os.WriteFile(path, []byte(text), 0o644)
	got, err2 := listed("--names", []string{"@" + path})
	if want := []string{"id = a", "store = file:x"}; err != nil || err2 != nil || !slices.Equal(got, want) {
		t.Errorf("%q, want %q: %v, %v", got, want, err, err2)
	}
}

// Each value of --clocks is a ClockPolicy, with the skew that it has.
func TestClocks(t *testing.T) {
	for args, want := range map[string]leaderelection.Config{
		"":                                  {ClockPolicy: leaderelection.Synchronized, MaxClockSkew: time.Second},
		"--clocks synchronized":             {ClockPolicy: leaderelection.Synchronized, MaxClockSkew: time.Second},
		"--clocks kernel":                   {ClockPolicy: leaderelection.Synchronized, MaxClockSkew: time.Second, Clock: clocks.Kernel()},
		"--clocks kernel --clocks shared":   {ClockPolicy: leaderelection.SharedClock},
		"--clocks synchronized --skew 10ms": {ClockPolicy: leaderelection.Synchronized, MaxClockSkew: 10 * time.Millisecond},
		"--clocks shared":                   {ClockPolicy: leaderelection.SharedClock},
		"--clocks unsynchronized":           {ClockPolicy: leaderelection.Unsynchronized, MaxClockSkew: time.Second},
		"--skew 2s --clocks unsynchronized": {ClockPolicy: leaderelection.Unsynchronized, MaxClockSkew: 2 * time.Second},
	} {
		a, _, code, errOut := probe(t, nil, "store = file:x\n", strings.Fields(args)...)
		if _, mute := (clocks.KernelClock{}).ErrorBound(); want.Clock != nil && mute != nil {
			if code != exitUsage {
				t.Errorf("%s, where the kernel may not be asked: exit code %d, %s", args, code, errOut)
			}
			continue
		}
		if code != 0 {
			t.Errorf("%s: %s", args, errOut)
		}
		cfg, err := a.candidate()
		if cfg.Clock != want.Clock {
			t.Errorf("%s: the clock is %T", args, cfg.Clock)
		}
		group, watch := a.observer(&store.Group{}), a.watching(nil)
		for of, got := range map[string]leaderelection.Config{
			"a candidate": cfg, "a watch": {ClockPolicy: watch.ClockPolicy, MaxClockSkew: watch.MaxClockSkew}, "a group": {ClockPolicy: group.ClockPolicy, MaxClockSkew: group.MaxClockSkew},
		} {
			if err != nil || got.ClockPolicy != want.ClockPolicy || got.MaxClockSkew != want.MaxClockSkew {
				t.Errorf("%s: %s has %v and %v, %v", args, of, got.ClockPolicy, got.MaxClockSkew, err)
			}
		}
	}
}

func TestCandidate(t *testing.T) {
	params := filepath.Join(t.TempDir(), "params")
	must(t, os.WriteFile(params, []byte{0, 1}, 0o644))
	a := &app{errOut: io.Discard, common: common{term: time.Minute, skew: time.Second, hostPort: []string{"a:1"}, params: "@" + params, clocks: leaderelection.Unsynchronized}}
	cfg, err := a.candidate()
	if err != nil || string(cfg.ConnectionParams) != "\x00\x01" || cfg.HostPort[0] != "a:1" || cfg.TermLength != time.Minute || cfg.ClockPolicy != leaderelection.Unsynchronized {
		t.Errorf("%+v, %v", cfg, err)
	}
	other, _ := a.candidate() // checked above
	if host, _ := os.Hostname(); cfg.LeaderID == other.LeaderID || !strings.HasPrefix(cfg.LeaderID, host+"-") {
		t.Errorf("names %q and %q", cfg.LeaderID, other.LeaderID)
	}
	// A short form stands for this machine's addresses; if it has none, that is said.
	a.common.hostPort = []string{":80"}
	if cfg, err := a.candidate(); err == nil && (len(cfg.HostPort) == 0 || !strings.HasSuffix(cfg.HostPort[0], ":80")) {
		t.Errorf("addresses %q", cfg.HostPort)
	}
}

// A command's lease is extended as often as its times want, and as --extend-every says where it is given.
func TestExtendEveryIsHeeded(t *testing.T) {
	times := runner.Times{Span: 14 * time.Second, Margin: time.Second, Grace: 3 * time.Second}
	for given, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 2 * time.Second: 2 * time.Second} {
		cfg := leaderelection.Config{ExtendEvery: given}
		if extendFor(times, &cfg); cfg.ExtendEvery != want {
			t.Errorf("--extend-every %v: extended every %v, want %v", given, cfg.ExtendEvery, want)
		}
	}
}

// Each setting of a Config is a flag, or is set elsewhere. A group of shards has the same setting, or
// refuses the flag.
func TestEverySettingIsTaken(t *testing.T) {
	elsewhere := []string{"Decider", "OnElected", "OnOusting", "LeaderChanged", "DrainTimeout", "Lifeline", "Healthy", "Clock", "Trace"}
	notOfGroups := []string{"LeaderID", "ConnectionParams", "ExtendEvery", "Priority"} // a member has a MemberID
	a := &app{errOut: io.Discard, common: common{
		id: "a", term: time.Minute, skew: time.Second, poll: time.Second, hostPort: []string{"a:1"}, params: "x",
		priority: 1, extendEvery: 10 * time.Second, clocks: leaderelection.Unsynchronized,
	}}
	cfg, err := a.candidate()
	must(t, err)
	member, err := (&memberFlags{divided: divided{shards: 3}}).member(a)
	must(t, err)
	of, ofMember := reflect.ValueOf(cfg), reflect.ValueOf(member)
	for _, f := range reflect.VisibleFields(of.Type()) {
		if slices.Contains(elsewhere, f.Name) {
			continue
		}
		if of.FieldByIndex(f.Index).IsZero() {
			t.Errorf("no flag sets Config.%s: add one to common, set it in candidate and give it a value in this test, or name the field in elsewhere", f.Name)
			continue
		}
		if v := ofMember.FieldByName(f.Name); !slices.Contains(notOfGroups, f.Name) && (!v.IsValid() || v.IsZero()) {
			t.Errorf("leaderelect shards run ignores Config.%s: add it to shard.Config and to memberFlags.member, or refuse its flag (memberFlags.check, ofElections) and name the field in notOfGroups", f.Name)
		}
	}
}

// FuzzSettingsFile reads any file of settings: what is read keeps what the flags promise, and what is
// not names the file.
func FuzzSettingsFile(f *testing.F) {
	for _, s := range []string{
		"id = a\nterm = 3s\nskew = 1s\n", "# a comment\n\n host-port = a:1,b:2\n", "term = -1s", "term=9223372036854775807ns\nskew=1ns", "skew = 10s",
		"id=a\nid=b", "config = x", "no-such = 1", "id", "= a", "params = @/dev/null", "clocks = maybe", "clocks = shared\nskew = 1s", "log-level = debug+3", "host-port = \"a\nb\"",
		"store = s3://id:secret@b/k", "\xff = \xff", "id = " + strings.Repeat("x", 70_000),
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	path := filepath.Join(dir, "settings")
	f.Fuzz(func(t *testing.T, data []byte) {
		must(t, os.WriteFile(path, data, 0o600))
		var out bytes.Buffer
		a := &app{in: strings.NewReader(""), out: io.Discard, errOut: &out}
		cmd := &cobra.Command{Use: "probe"}
		a.common.flags(cmd.Flags())
		a.common.config = path
		c := &a.common
		if err := a.fromFile(cmd, path); err != nil {
			if !strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), "--config") {
				t.Errorf("the error does not say where: %v", err)
			}
			return
		}
		if c.config != path {
			t.Errorf("a file of settings names another one: %q", c.config)
		}
		if checkSpans(cmd) == nil && c.checkTimes() == nil && (c.term <= 0 || c.skew <= 0 && c.clocks != leaderelection.SharedClock || c.skew > c.term-c.skew || c.poll < 0) {
			t.Errorf("term %v, skew %v, poll %v pass", c.term, c.skew, c.poll)
		}
	})
}

// A URL with a secret is not passed on unless one says so, and another is unless one
// says so.
func TestPassStore(t *testing.T) {
	for raw, pass := range map[string]bool{
		"file:///var/lib/app/election.json":                             true,
		"file:election.json":                                            true,
		"s3://bucket/key?region=eu-central-1":                           true,
		"s3://bucket/key?region=x&endpoint=http://127.0.0.1:9000":       true,
		"nats://host:4222/bucket/key?create=true&storage=memory":        true,
		"postgres://user@host:5432/database?sslmode=disable&election=x": true,
		"redis://host:6379/0?key=election":                              true,
		"postgres://user:s3cret@host:5432/database?election=x":          false,
		"redis://:s3cret@host:6379/0":                                   false,
		"nats://token@host:4222/bucket/key":                             false,
		"nats://user:s3cret@host:4222/bucket/key":                       false,
		"azblob://account/container/blob?sig=s3cret":                    false,
		"postgres://host/database?password=s3cret":                      false,
		"s3://bucket/key?endpoint=http://user:s3cret@host:9000":         false,
		"redis://:s3#cret@host":                                         false,
		"%zz":                                                           false,
	} {
		for flag, want := range map[string]bool{"": pass, "--pass-store": true, "--pass-store=0": false} {
			if got, _ := passes(t, flag).of(raw); (got != "") != want || got != "" && got != raw {
				t.Errorf("%s, %s: %q", flag, raw, got)
			}
		}
	}
	for flag, want := range map[string]int{"": 1, "--pass-store=false": 1, "--pass-store": 0} {
		if _, withheld := passes(t, flag).of("mysql://host/database?election=x"); len(withheld) != want {
			t.Errorf("%q withholds %q", flag, withheld)
		}
	}
}

// passes is what a flag makes of a passStore.
func passes(t *testing.T, flag string) *passStore {
	t.Helper()
	p, f := &passStore{}, pflag.NewFlagSet("", pflag.ContinueOnError)
	p.flag(f)
	must(t, f.Parse(strings.Fields(flag)))
	return p
}
