package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
)

// says runs a command line and returns all that it prints.
func says(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// lines are command lines with a URL.
var lines = [][]string{
	{"status", "--timeout", "20ms", "URL"}, {"doctor", "URL"}, {"doctor", "--json", "URL"}, {"doctor", "--scratch=URL", "file:///nowhere/x"},
	{"transfer", "--force", "--timeout", "20ms", "URL", "somebody"}, {"transfer", "b", "URL"}, {"transfer", "URL"}, {"stepdown", "--timeout", "20ms", "URL"},
	{"plan", "--candidates", "0", "--store", "URL"}, {"plan", "URL"}, {"URL"}, {"status", "URL", "more"}, {"status", "--config", "FILE"}, {"help", "URL"},
	{"run", "--wait", "20ms", "URL", "--", "/no/such/program"}, {"watch", "--log-level", "debug", "--poll", "x", "URL"},
}

// spots are where a secret may be in a URL. Nothing is reached under any of them, and
// nothing waits.
var spots = []string{
	"redis://id:%s@127.0.0.1:1/x?key=a", "redis://127.0.0.1:1/0?password=%s", "nats://%s@127.0.0.1:1/b", "s3://id:%s@bucket/key", "s3://bucket/key?secret_access_key=%s",
	"s3://bucket/key?endpoint=id:%s@host:9000", "azblob://account/c/b?sig=%s", "postgres://id:%s@127.0.0.1:1/db?sslmode=no", "nosuch://id:%s@host/x", "id:%s@host/x",
}

// FuzzSecretsAreNotTold plants a secret in a URL and looks for any letter of it in
// all that a command prints.
func FuzzSecretsAreNotTold(f *testing.F) {
	for i := range lines {
		for j := range spots {
			f.Add(i, j, []byte{byte(i+j) % 5})
		}
	}
	const alphabet = "/#?@:QZJXQZJX&=%;"
	f.Fuzz(func(t *testing.T, line, spot int, data []byte) {
		if len(data) > 12 {
			t.Skip("longer inputs show nothing more")
		}
		secret := "Q"
		for _, b := range data {
			secret += string(alphabet[int(b)%len(alphabet)])
		}
		form := spots[uint(spot)%uint(len(spots))]
		for _, s := range []string{secret + "Z", url.QueryEscape(secret + "Z")} {
			raw := fmt.Sprintf(form, s)
			if !strings.Contains(form, "://") && strings.Contains(raw, "://") {
				continue // a scheme, and a host, are told
			}
			var args []string
			for _, arg := range lines[uint(line)%uint(len(lines))] {
				if arg == "FILE" {
					arg = filepath.Join(t.TempDir(), "settings")
					must(t, os.WriteFile(arg, []byte("store = "+raw+"\nterm = 5s\nstore "+raw+"\n"), 0o600))
				}
				args = append(args, strings.ReplaceAll(arg, "URL", raw))
			}
			code, out, errOut := says(t, args...)
			if code == 0 || strings.ContainsAny(out+errOut, "QZJX") {
				t.Fatalf("%q exits with %d and says:\n%s%s", args, code, out, errOut)
			}
		}
	})
}

// What the log is told is without secrets, too.
func TestLogTellsNoSecrets(t *testing.T) {
	const raw = "redis://id:QZ@127.0.0.1:1/0?key=a"
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		a := &app{errOut: &out}
		a.common.logFormat = format
		a.keepSecret([]string{"--store=" + raw})
		u, err := url.Parse(raw)
		must(t, err)
		a.logger().With("url", raw).Warn("with QZ", "err", fmt.Errorf("dialing %s", raw), "u", u, "n", 1)
		a.log().Flush(time.Minute)
		if s := out.String(); strings.Contains(s, "QZ") || !strings.Contains(s, "xxxxx@127.0.0.1") {
			t.Error(s)
		}
	}
}

// hostile is what somebody with access to the store may call himself.
const hostile = "a\x1b[2J\x1b]0;owned\a\nstate      led\r\u009bm\u202e\x7f"

// place makes an election of which that one is the leader, and returns its URL.
func place(t *testing.T, e leaderelection.RaceEntry) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "e.json")
	if _, err := file.NewDecider(path, nil).WriteEntry(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

// What a record holds reaches no terminal as it is.
func TestNoEscapesReachTheTerminal(t *testing.T) {
	held := leaderelection.RaceEntry{LeaderID: hostile, HostPort: []string{hostile}, ConnectionParams: []byte(hostile), Successor: hostile,
		ElectionNumber: 7, TermExpiry: time.Now().Add(time.Hour), TermLength: time.Hour, Incarnation: "i"}
	lapsed, vacant, unsynchronized := held, held, held
	lapsed.TermExpiry = time.Now().Add(-time.Hour)
	vacant.LeaderID = ""
	unsynchronized.Unsynchronized, unsynchronized.TermLength = true, 100*time.Millisecond
	for what, e := range map[string]leaderelection.RaceEntry{"held": held, "lapsed": lapsed, "vacant": vacant, "unsynchronized": unsynchronized} {
		at := place(t, e)
		for _, args := range [][]string{
			{"status", at}, {"status", "--check-id", hostile, at}, {"doctor", "--term", "1h", at}, {"stepdown", "--timeout", "50ms", at},
			{"transfer", "--timeout", "50ms", at, hostile}, {"transfer", "--timeout", "50ms", "--force", at, hostile + "x"}, {hostile}, {"status", "--" + hostile, at}, {"run", "--id", hostile, "--wait", "50ms", at, "--", "true"},
		} {
			_, out, errOut := says(t, args...)
			for _, r := range out + errOut {
				if r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e') {
					t.Errorf("%s: %q prints %U:\n%q", what, args, r, out+errOut)
					break
				}
			}
			if strings.Contains(out, "\nstate      led\r") || strings.Count(out, "\nstate ") > 1 {
				t.Errorf("%s: %q prints a line of the record's:\n%q", what, args, out)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		var out, errOut bytes.Buffer
		run(ctx, []string{"watch", "--extensions", at}, nil, &out, &errOut)
		cancel()
		out.Write(errOut.Bytes())
		if strings.ContainsAny(out.String(), "\x1b\a\r\u009b\u202e\x7f") || strings.Count(out.String(), "\n") > 3 || out.Len() == 0 {
			t.Errorf("%s: watch prints %q", what, out.String())
		}
	}
}

// The log has no statement that makes a table: it is printed once, at the end.
func TestSchemaIsNotLogged(t *testing.T) {
	for from, want := range map[string]string{
		"a: make it:\nCREATE TABLE x (\n\ty\n) WITH (z);\n":        "a: make it",
		"a: make it:\nCREATE TABLE x (\n\ty\n)\nand another error": "a: make it\nand another error",
		"one\nanother": "one\nanother",
	} {
		if got := withoutSchema(from); got != want {
			t.Errorf("%q becomes %q, want %q", from, got, want)
		}
	}
}

// --strict ends with 1 for a warning by which two may lead, and for no other.
func TestStrictDoctor(t *testing.T) {
	for _, c := range []struct {
		strict, unsafe bool
		failed         bool
	}{{true, true, true}, {true, false, false}, {false, true, false}} {
		a := &app{out: io.Discard, errOut: io.Discard}
		err := a.checkup(t.Context(), false, c.strict, func(_ context.Context, tell func(doctor.Finding)) error {
			tell(doctor.Finding{Check: "a setting", Verdict: doctor.Warn, Unsafe: c.unsafe})
			return nil
		})
		if (err != nil) != c.failed {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A JSON log has spans of time in seconds, as everything else that is printed as JSON.
func TestLogHasSeconds(t *testing.T) {
	for format, want := range map[string]string{"json": `"took":1.5,`, "text": "took=1.5s "} {
		var out bytes.Buffer
		a := &app{errOut: &out}
		a.common.logFormat = format
		a.logger().Info("done", "took", 1500*time.Millisecond, "n", 1)
		a.log().Flush(time.Minute)
		if !strings.Contains(out.String(), want) {
			t.Error(out.String())
		}
	}
}

// A check whose output nobody takes ends when it is asked to.
func TestUntakenCheckupEnds(t *testing.T) {
	taken, out := io.Pipe()
	defer taken.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	a := &app{out: out, errOut: io.Discard}
	why := errors.New("asked to end")
	err := a.checkup(ctx, false, false, func(_ context.Context, tell func(doctor.Finding)) error {
		cancel(why)
		tell(doctor.Finding{Check: "the first", Verdict: doctor.OK})
		tell(doctor.Finding{Check: "the second", Verdict: doctor.OK})
		return nil
	})
	if !errors.Is(err, why) {
		t.Errorf("it has ended with %v", err)
	}
}

// Advice names what can be written at the command line.
func TestAdviceNamesParameters(t *testing.T) {
	for from, want := range map[string]string{
		"create it, or set Options.CreateDir (create=true in an address)":                         "create it, or set create=true in the URL",
		"sqlite.Options.Create (create=true in an address) makes the file":                        "create=true in the URL makes the file",
		"create it (nats kv add BUCKET), or let Options.Create do so (create=true in an address)": "create it (nats kv add BUCKET), or create=true in the URL",
		"give Options.Listen a direct connection to it (listen_url in an address)":                "give Options.Listen a direct connection to it (listen_url in an address)",
		"set Options.NoListen (listen=false)":                                                     "set listen=false in the URL",
		"set wait_replicas=2 (Options.WaitReplicas) for all candidates":                           "set wait_replicas=2 for all candidates",
		"trust the authority (cacert in a URL, TLSConfig.RootCAs), and connect by a name":         "trust the authority (cacert in the URL), and connect by a name",
		"nothing of the kind (as here)":                                                           "nothing of the kind (as here)",
	} {
		if got := atTheCommandLine(from); got != want {
			t.Errorf("%q: %q, want %q", from, got, want)
		}
	}
}

// The version names the commit, and whether there is more than that in it.
func TestCommitOf(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for want, s := range map[string][]debug.BuildSetting{
		"":                          nil,
		"0123456789ab":              {setting("vcs.revision", "0123456789abcdef"), setting("vcs.modified", "false")},
		"0123456789ab with changes": {setting("vcs.modified", "true"), setting("vcs.revision", "0123456789abcdef")},
	} {
		if got := commitOf(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Help fits into 80 columns, but for what has no blanks to break it at, and shows all of help.txt.
func TestHelpFits(t *testing.T) {
	commands, sections := []*cobra.Command{(&app{}).root()}, strings.Count(helpText, "\n== ")
	for i := 0; i < len(commands); i++ { // with those below each
		commands = append(commands, commands[i].Commands()...)
		command := commands[i].CommandPath()
		for _, text := range []string{commands[i].Long, commands[i].Example} {
			if text != "" {
				sections--
			}
		}
		code, out, errOut := says(t, append([]string{"help"}, strings.Fields(command)[1:]...)...)
		if code != 0 || len(out) < 20 {
			t.Errorf("%s: %d %s", command, code, errOut)
		}
		for line := range strings.Lines(out) {
			if line = strings.TrimRight(line, "\n"); len([]rune(line)) > 80 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s: %d columns: %s", command, len([]rune(line)), line)
			}
		}
	}
	if sections != 0 {
		t.Errorf("%d sections of help.txt are of no command", sections)
	}
}

// Who is not elected is told why not: also by whom that does not live any more.
func TestWhoHasTheElection(t *testing.T) {
	const skew = time.Second
	record := func(change func(*leaderelection.RaceEntry)) *leaderelection.RaceEntry {
		e := &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 7, TermLength: 15 * time.Second, TermExpiry: time.Now().Add(time.Minute)}
		change(e)
		return e
	}
	for want, e := range map[string]*leaderelection.RaceEntry{
		": a leads, with token 7":                                      record(func(e *leaderelection.RaceEntry) {}),
		": a, elected with token 7, does not extend its term any more": record(func(e *leaderelection.RaceEntry) { e.TermExpiry = time.Now().Add(-time.Minute) }),
		": a, elected with token 7, does not extend its term any more, and the record is held by its --hold until 20": record(func(e *leaderelection.RaceEntry) {
			e.TermExpiry, e.Hold = time.Now().Add(-time.Minute), time.Hour
		}),
		": the leadership with token 7 is over, and held by its --hold until 20": record(func(e *leaderelection.RaceEntry) { e.LeaderID, e.Hold = "", time.Hour }),
		": it is reserved for b until 20":                                        record(func(e *leaderelection.RaceEntry) { e.LeaderID, e.Successor = "", "b" }),
	} {
		if got := who(e, skew, false); !strings.HasPrefix(got, want) || !strings.HasSuffix(want, "20") && got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
	lapsed := record(func(e *leaderelection.RaceEntry) { e.TermExpiry, e.Unsynchronized = time.Now().Add(-time.Minute), true })
	if got := who(lapsed, skew, true); got != ": a leads, with token 7" {
		t.Errorf("without clocks: %q", got)
	}
}

// What is left of a wait includes the opening of the store, by the wall clock.
func TestWhatIsLeftOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, url := &app{errOut: io.Discard}, "file://"+filepath.Join(t.TempDir(), "election.json")
		for want, e := range map[time.Duration]*entry{
			-1: {}, 0: {waits: true}, time.Minute: {waits: true, wait: time.Minute + time.Second}, time.Millisecond: {waits: true, wait: time.Millisecond},
		} {
			d, err := e.open(t.Context(), a, url)
			must(t, err)
			store.Close(d)
			if time.Sleep(time.Second); e.left() != want {
				t.Errorf("%+v: %v are left, want %v", e, e.left(), want)
			}
		}
		if e := (entry{try: true}); e.left() != 0 {
			t.Errorf("--try: %v are left", e.left())
		}
	})
}

// Whose job is led by a run of an earlier period, which has outlasted its hold, is told.
func TestOverrunIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		leader leaderelection.RaceEntry
		code   int
		told   bool
	}{
		"an earlier run":       {leaderelection.RaceEntry{LeaderID: "a"}, exitNotElected, true},
		"told of all the same": {leaderelection.RaceEntry{LeaderID: "a"}, 0, true},
		"this one":             {leaderelection.RaceEntry{LeaderID: "a", Hold: time.Hour}, exitNotElected, false},
		"it is over":           {leaderelection.RaceEntry{Hold: time.Hour}, exitNotElected, false},
	} {
		var log bytes.Buffer
		a := &app{errOut: &log, common: common{term: 15 * time.Second, skew: time.Second}}
		c.leader.TermExpiry = time.Now().Add(time.Minute)
		verdict, is := (&entry{try: true, hold: time.Hour, code: c.code}).notElected(a, fmt.Errorf("x: %w", &leaderelection.NotElectedError{Leader: c.leader}))
		a.log().Flush(time.Minute)
		if told := strings.Contains(log.String(), "the last run of the job has not ended"); told != c.told || !is || (verdict == nil) != (c.code == 0) {
			t.Errorf("%s: %v; logged %q", name, verdict, log.String())
		}
	}
	if _, is := (&entry{}).notElected(&app{}, leaderelection.ErrClockSkew); is {
		t.Error("a wrong clock is taken for another's leadership")
	}
}

// The log tells of a store that cannot be reached at first once, and once more when it is open.
func TestOpensPatiently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		a := &app{errOut: &log}
		tries := 0
		opened, err := patiently(t.Context(), a, func() (string, error) {
			if tries++; tries < 4 {
				return "", errors.New("nobody is there")
			}
			return "store", nil
		})
		if opened != "store" || err != nil || tries != 4 {
			t.Fatalf("%q, %v after %d tries", opened, err, tries)
		}
		a.log().Flush(time.Minute)
		for _, says := range []string{"the store cannot be opened", `msg="the store is open" after=7s failed=3`} {
			if n := strings.Count(log.String(), says); n != 1 {
				t.Errorf("it says %q %d times:\n%s", says, n, log.String())
			}
		}
		_, err = patiently(t.Context(), a, func() (string, error) { return "", leaderelection.ErrPermanent })
		if !errors.Is(err, leaderelection.ErrPermanent) {
			t.Errorf("what no retry can help: %v", err)
		}
	})
}

// A candidate is given up for stuck when two looks in a row find its lease over, and itself
// the leader.
func TestStuck(t *testing.T) {
	var s supervisor
	for i, c := range []struct{ overdue, alive bool }{{false, true}, {true, true}, {false, true}, {true, true}, {true, false}, {true, false}, {false, true}} {
		if got := s.look(c.overdue); got != c.alive {
			t.Errorf("look %d: alive %v, want %v", i, got, c.alive)
		}
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
