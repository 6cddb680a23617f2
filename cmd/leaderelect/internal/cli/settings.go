package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/prefer"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/lifeline"
)

// envPrefix begins the names of all environment variables that are read.
const envPrefix = "LEADERELECT_"

// common is what all commands can be told.
type common struct {
	id        string
	term      time.Duration
	skew      time.Duration
	poll      time.Duration
	hostPort  []string
	params    string
	logFormat string
	logLevel  string
	config    string

	clocks      leaderelection.ClockPolicy
	priority    int
	extendEvery time.Duration
	kernelClock bool

	store    string // from the environment or the file: the URL if none is given
	confides bool   // the file has a secret in it
}

func (c *common) flags(f *pflag.FlagSet) {
	f.StringVar(&c.id, "id", "", "this candidate's name, unique in the election (default host name, pid and a random part)")
	f.DurationVar(&c.term, "term", leaderelection.DefaultTermLength, "how long a lease runs; the leader extends it about twice a term")
	f.DurationVar(&c.skew, "skew", time.Second, "how far any candidate's clock may be from true time")
	f.Var((*clocksFlag)(c), "clocks", "synchronized, kernel, shared or unsynchronized: see docs/operators.md#store-and-clocks")
	f.IntVar(&c.priority, "priority", 0, "after standing by for four terms under a leader whose priority is less, ask it to hand over")
	f.DurationVar(&c.extendEvery, "extend-every", 0, "how often a leader extends its lease. If the store fails, it leads on for at least --term less --skew less this (default half of what --skew leaves of --term; with a command half of what --skew, --grace and a margin leave)")
	f.DurationVar(&c.poll, "poll", 0, "how often to read the record if the store cannot push changes (default half a term)")
	f.StringSliceVar(&c.hostPort, "host-port", nil, "where clients reach this candidate when it leads; \":PORT\" stands for this machine's addresses, without those of Docker's bridges and the like; may be repeated")
	f.StringVar(&c.params, "params", "", "what else clients should know about the leader; \"@FILE\" reads it from a file")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json; the log goes to standard error")
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&c.config, "config", "", "a file of settings, one \"name = value\" a line")
}

// settle fills in flags that were not given, from the environment and from the
// config file, and checks what all commands share.
func (a *app) settle(cmd *cobra.Command) error {
	c := &a.common
	if err := fromEnvironment(cmd); err != nil {
		return err
	}
	c.store = os.Getenv(envPrefix + "STORE")
	if c.config != "" {
		if err := a.fromFile(cmd, c.config); err != nil {
			return err
		}
	}
	switch c.logFormat {
	case "text", "json":
	default:
		return usage("--log-format is %q, want text or json", c.logFormat)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return usage("--log-level is %q, want debug, info, warn or error", c.logLevel)
	}
	store.LogDrivers(a.logger())
	if c.confides {
		a.warnOfReaders("--config", c.config)
	}
	a.warnOfMistyped(cmd.Root())
	if err := checkSpans(cmd); err != nil {
		return err
	}
	if c.clocks == leaderelection.SharedClock {
		if cmd.Flags().Changed("skew") {
			return usage("--skew means nothing with --clocks shared: take one of them away")
		}
		c.skew = 0
	}
	return c.checkTimes()
}

// checkSpans refuses spans of time that nobody means: what is negative, or in nanoseconds was a bare number to
// whoever made the setting, and no time at all is enough to wait in.
func checkSpans(cmd *cobra.Command) (fault error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() != "duration" || !f.Changed || fault != nil {
			return
		}
		switch d, err := time.ParseDuration(f.Value.String()); {
		case err != nil:
		case d < 0:
			fault = usage("--%s is %v, must not be negative", f.Name, d)
		case d > 0 && d < time.Millisecond:
			fault = usage("--%s is %v: want 1ms or more, with its unit, as in 500ms, 15s or 2m", f.Name, d)
		case d == 0 && f.Name == "timeout":
			fault = usage("--timeout is 0s, must be positive")
		}
	})
	return fault
}

func (c *common) checkTimes() error {
	switch {
	case c.term <= 0:
		return usage("--term is %v, must be positive", c.term)
	case c.skew == 0 && c.clocks != leaderelection.SharedClock:
		return usage("--skew is 0, must be positive: if all candidates share one clock, say --clocks shared instead")
	case c.skew > c.term/2:
		return usage("--term is %v, must be at least twice --skew (2 x %v): less leaves a leader no time to act", c.term, c.skew)
	case c.extendEvery != 0 && (c.extendEvery < c.term/20 || c.extendEvery > (c.term-c.skew)/2):
		return usage("--extend-every is %v, must be from %v (a twentieth of --term) to %v (half of --term less --skew)", c.extendEvery, c.term/20, (c.term-c.skew)/2)
	}
	return nil
}

// fromEnvironment sets the flags that were not given and are in the environment. A variable that
// is empty counts as not set: "VAR=" in a unit, and "${VAR:-}" in a compose file, mean that.
func fromEnvironment(cmd *cobra.Command) error {
	// Within the command of another leaderelect the expiry file belongs to the outer one: to
	// write there, too, would tell its command a wrong time. So does the number of shards.
	within := os.Getenv(envPrefix+"TOKEN") != ""
	inherited := map[string]bool{envPrefix + "EXPIRY_FILE": within, envPrefix + "SHARDS": within}
	var fault error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := os.Getenv(name)
		if f.Changed || value == "" || fault != nil || f.Name == "help" || f.Name == "version" || inherited[name] {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			fault = usage("%s=%q in the environment: %v", name, value, err)
		}
	})
	return fault
}

// warnOfMistyped warns of variables that no command reads. It refuses none: Kubernetes
// makes such names of a service that is called leaderelect.
func (a *app) warnOfMistyped(root *cobra.Command) {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		short, ours := strings.CutPrefix(name, envPrefix)
		if !ours || slices.Contains(runner.Told, name) || anyCommandHas(root, strings.ToLower(strings.ReplaceAll(short, "_", "-"))) {
			continue
		}
		a.logger().Warn("this variable in the environment is not a setting: is it mistyped?", "variable", name)
	}
}

// fromFile sets the flags that are not set yet and are in the file. A setting of
// another command is left alone; one of none is an error.
func (a *app) fromFile(cmd *cobra.Command, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return usage("--config: %v", err)
	}
	seen, n := make(map[string]bool), 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		a.common.confides = a.common.confides || redact.URL(value) != value
		switch {
		case !found:
			return usage("%s:%d: want name = value: there is no =", path, n)
		case seen[name]:
			return usage("%s:%d: %s is there twice", path, n, name)
		}
		seen[name] = true
		if err := a.setFromFile(cmd, name, value); err != nil {
			return usage("%s:%d: %v", path, n, err)
		}
	}
	return nil
}

func (a *app) setFromFile(cmd *cobra.Command, name, value string) error {
	f := cmd.Flags().Lookup(name)
	if name == "store" && f == nil { // an argument, for all commands but plan
		a.keepSecret([]string{value})
		if a.common.store == "" {
			a.common.store = value
		}
		return nil
	}
	switch {
	case name == "config" || name == "help" || name == "version":
		return fmt.Errorf("%s cannot be set in a file", name)
	case f == nil && !anyCommandHas(cmd.Root(), name):
		return fmt.Errorf("no command has a setting %q", name)
	case f == nil || f.Changed:
		return nil
	}
	if err := cmd.Flags().Set(name, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func anyCommandHas(cmd *cobra.Command, name string) bool {
	if cmd.Flags().Lookup(name) != nil {
		return true
	}
	for _, sub := range cmd.Commands() {
		if anyCommandHas(sub, name) {
			return true
		}
	}
	return false
}

// url is the store's URL: the argument, or where there is none the one from the environment
// or the file.
func (a *app) url(args []string) (string, error) {
	switch {
	case len(args) > 0:
		return args[0], nil
	case a.common.store != "":
		return a.common.store, nil
	}
	return "", usage("no store: give its URL, or set %sSTORE", envPrefix)
}

// onURL runs a command whose one argument is the store's URL.
func (a *app) onURL(do func(c *cobra.Command, url string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		url, err := a.url(args)
		if err != nil {
			return err
		}
		return do(c, url)
	}
}

// trusts are the values of --clocks: each ClockPolicy at its index, and one more for
// clocks.Kernel.
var trusts = []string{"synchronized", "shared", "unsynchronized", "kernel"}

// clocksFlag is --clocks as a flag's value.
type clocksFlag common

func (f *clocksFlag) String() string {
	if f.kernelClock {
		return "kernel"
	}
	return trusts[f.clocks]
}

func (f *clocksFlag) Type() string { return "string" }

func (f *clocksFlag) Set(s string) error {
	i := slices.Index(trusts, s)
	if i < 0 {
		return fmt.Errorf("want %s", strings.Join(trusts, ", "))
	}
	if f.kernelClock = s == "kernel"; f.kernelClock {
		i = int(leaderelection.Synchronized)
	}
	f.clocks = leaderelection.ClockPolicy(i)
	return nil
}

// candidate is the part of a Config that flags say.
func (a *app) candidate() (leaderelection.Config, error) {
	c := &a.common
	cfg := leaderelection.Config{
		LeaderID:     c.id,
		TermLength:   c.term,
		MaxClockSkew: c.skew,
		ClockPolicy:  c.clocks,
		PollInterval: c.poll,
		Logger:       a.logger(),

		Priority:    c.priority,
		ExtendEvery: c.extendEvery,
	}
	if c.kernelClock {
		if _, err := (clocks.KernelClock{}).ErrorBound(); err != nil {
			return cfg, usage("--clocks kernel: %v", err)
		}
		cfg.Clock = clocks.Kernel()
	}
	switch c.id {
	case "":
		cfg.LeaderID = defaultID()
	case leaderelection.AnySuccessor:
		return cfg, usage("--id %q is reserved", c.id)
	}
	for _, hp := range c.hostPort {
		hp = strings.TrimSpace(hp)
		if port, short := strings.CutPrefix(hp, ":"); short {
			if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
				return cfg, usage("--host-port %s: %q is not a port", hp, port)
			}
			own, err := leaderelection.SelfHostPorts(port)
			if err != nil {
				return cfg, fmt.Errorf("--host-port %s: %w", hp, err)
			}
			cfg.HostPort = append(cfg.HostPort, own...)
			continue
		}
		if err := route.CheckHostPort(hp); err != nil {
			return cfg, usage("--host-port: %w: want HOST:PORT, [IPv6]:PORT, or :PORT for this machine's addresses", err)
		}
		cfg.HostPort = append(cfg.HostPort, hp)
	}
	cfg.ConnectionParams = []byte(c.params)
	if path, named := strings.CutPrefix(c.params, "@"); named {
		data, err := os.ReadFile(path)
		if err != nil {
			return cfg, usage("--params: %v", err)
		}
		cfg.ConnectionParams = data
	}
	return cfg, nil
}

// defaultID is unique among processes on any number of machines, and tells a
// person which one it is.
func defaultID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), strings.ToLower(rand.Text()[:6]))
}

// commandFlags are those of what runs commands: one while it leads, or one for each shard.
type commandFlags struct {
	grace, drain, delay time.Duration
	onFailure           string
	setuid              bool
	pass                passStore
	lifeline            lifelineDir
	readiness           readiness

	policies []string     // that onFailure may be
	times    runner.Times // by check
}

// defaultDrain fits into the 30 s that Kubernetes gives a pod to end.
const defaultDrain = 20 * time.Second

// flags declares them, but for the lifeline. Help says of each what it means for the command, or
// for one of several.
func (f *commandFlags) flags(a *app, c *cobra.Command, grace, drain, onFailure, setuid string, policies ...runner.Policy) {
	for _, p := range policies {
		f.policies = append(f.policies, string(p))
	}
	s := c.Flags()
	s.DurationVar(&f.grace, "grace", 0, grace+"; then it is killed. It must fit into half a term (default a quarter of the term less the skew, 10s at most)")
	s.DurationVar(&f.drain, "drain", defaultDrain, drain)
	s.DurationVar(&f.delay, "restart-delay", time.Second, "how long to wait before a command that has ended is started again. It doubles, up to 60 times this, until the command has run for 10 times this")
	s.StringVar(&f.onFailure, "on-failure", string(runner.Restart), onFailure)
	choices(c, "on-failure", f.policies...)
	s.BoolVar(&f.setuid, "allow-setuid", false, setuid+" (no effect for root)")
	f.pass.flag(s)
	f.readiness.flags(a, c, whenStanding, true)
}

func (f *commandFlags) check(c *common) (err error) {
	f.times, err = runner.TimesFor(c.term, c.skew, f.grace)
	switch last := len(f.policies) - 1; {
	case err != nil:
		return &exit{exitUsage, err}
	case f.delay < 10*time.Millisecond:
		return usage("--restart-delay is %v, must be at least 10ms", f.delay)
	case !slices.Contains(f.policies, f.onFailure):
		return usage("--on-failure is %q, want %s or %s", f.onFailure, strings.Join(f.policies[:last], ", "), f.policies[last])
	}
	return nil
}

// find is why a command cannot be run, as far as can be seen.
func (f *commandFlags) find(name string) error {
	if _, err := proc.Find(name, f.setuid); err != nil {
		return &exit{proc.CodeOf(err), err}
	}
	return nil
}

// config is how to run a command by them.
func (f *commandFlags) config(url, id string, command []string, log *slog.Logger) runner.Config {
	passed, withheld := f.pass.of(url)
	return runner.Config{
		Args: command, Stdout: os.Stdout, Stderr: os.Stderr, Store: passed, Withheld: withheld, LeaderID: id,
		Setuid: f.setuid, Times: f.times, Drain: f.drain, OnFailure: runner.Policy(f.onFailure), Delay: f.delay, Logger: log,
	}
}

// start starts a campaign: for one leadership, if once is not nil. Each command does so that has --priority: a
// leader that is less preferred is asked to hand over while the campaign goes on.
func start(ctx context.Context, cfg leaderelection.Config, once *leaderelection.OnceOptions) (campaign *leaderelection.Campaign, err error) {
	if once != nil {
		campaign, err = cfg.StartOnce(ctx, *once)
	} else {
		campaign, err = cfg.Start(ctx)
	}
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		<-campaign.Done()
		stop()
	}()
	go func() { _ = prefer.Over(ctx, campaign, cfg) }() // it ends with ctx
	return campaign, nil
}

// lifelineDir is the setting of a command that has a lifeline: a directory, or one of these.
type lifelineDir string

const (
	lifelineAuto = "auto"
	lifelineNone = "none"
)

func (l *lifelineDir) flag(c *cobra.Command, about string) {
	c.Flags().StringVar((*string)(l), "lifeline", lifelineAuto, about+`. It is a directory in memory, the same for all candidates of this machine. "none" is without; "auto" is the first usable one of $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR/leaderelection, /run/leaderelection and /dev/shm/leaderelection-UID (Linux)`)
	_ = c.MarkFlagDirname("lifeline") // for completion; the flag is there
}

// lifelineDirs are the directories to try, the best first.
func lifelineDirs() (all []string) {
	if first, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":"); first != "" {
		all = append(all, first)
	}
	if xdg := os.Getenv("XDG_RUNTIME_DIR"); xdg != "" {
		all = append(all, filepath.Join(xdg, "leaderelection"))
	}
	return append(all, "/run/leaderelection", fmt.Sprintf("/dev/shm/leaderelection-%d", os.Geteuid()))
}

// open returns the lifeline, or nil if there is to be none. With auto an error says why no directory
// fits; else it is one of usage.
func (l lifelineDir) open() (*lifeline.Lifeline, error) {
	switch l {
	case lifelineNone:
		return nil, nil //nolint:nilnil // there is none
	case lifelineAuto:
	default:
		line, err := lifeline.Dir(string(l))
		if err != nil {
			return nil, usage("--lifeline: %w", err)
		}
		return line, nil
	}
	var faults []error
	for _, dir := range lifelineDirs() {
		line, err := lifeline.Dir(dir)
		if err == nil {
			return line, nil
		}
		faults = append(faults, err)
	}
	return nil, errors.Join(faults...)
}

// forCandidate is open for a candidate, which does without if no directory fits. The processes
// that it starts from now on have the lifeline, too: so its death is proved when all are gone.
func (l lifelineDir) forCandidate(a *app) (*lifeline.Lifeline, error) {
	line, err := l.open()
	switch _, wrong := errors.AsType[*exit](err); {
	case wrong:
		return nil, err
	case err == nil && line != nil:
		if err = proc.PassOn(line.File()); err == nil {
			return line, nil
		}
		_ = line.Close()
	}
	if err != nil {
		a.logger().Debug("no lifeline: if this process is killed, others wait for its term", "err", err)
	}
	return nil, nil //nolint:nilnil // it does without
}

// finding says which directory open takes, or why there is none and what to set.
func (l lifelineDir) finding() doctor.Finding {
	const check = "the lifeline"
	line, err := l.open()
	switch _, wrong := errors.AsType[*exit](err); {
	case wrong:
		return doctor.Finding{Check: check, Verdict: doctor.Fail, Detail: err.Error(), Advice: "run and shards run do not start with this setting; without it they take a directory themselves"}
	case err != nil && runtime.GOOS != "linux":
		return doctor.Finding{Check: check, Verdict: doctor.Skip, Detail: "none: lifelines need Linux", Advice: "after a leader is killed, the others wait for its term"}
	case err != nil:
		return doctor.Finding{Check: check, Verdict: doctor.Warn, Detail: "none: after a leader is killed, the others wait for its term\n" + err.Error(),
			Advice: "make a directory in memory that belongs to this user, and set --lifeline to it for all candidates of this machine"}
	case line == nil:
		return doctor.Finding{Check: check, Verdict: doctor.OK, Detail: "none, as --lifeline says: after a leader is killed, the others wait for its term"}
	}
	defer line.Close()
	return doctor.Finding{Check: check, Verdict: doctor.OK, Detail: fmt.Sprintf("%s, as user %d: candidates of this machine with the same directory need not wait for the term of a dead process", line, os.Geteuid())}
}

// passStore reports whether a command finds the store's URL in its environment, which
// other programs of the same user can read, and which ends up in logs. Unless somebody has said so, the URL
// decides: one with a password is not passed on.
type passStore struct {
	yes  bool
	said func() bool
}

func (p *passStore) flag(f *pflag.FlagSet) {
	f.BoolVar(&p.yes, "pass-store", false, "give the command the store's URL (LEADERELECT_STORE) even if it has a password, and the variables that have the password, such as MYSQL_PWD (default: neither)")
	p.said = func() bool { return f.Changed("pass-store") }
}

// store is what the environment has of the store's URL: empty for nothing.
func (p *passStore) store(raw string) string {
	if !p.yes && (p.said() || hasSecret(raw)) {
		return ""
	}
	return raw
}

// of is what a command finds of the store's URL in its environment, and the variables of this
// program's environment that it does not find: what a URL's password is kept in as well as in
// the URL.
func (p *passStore) of(raw string) (url string, withheld []string) {
	if !p.yes {
		withheld = store.Secrets(raw)
	}
	return p.store(raw), withheld
}

// hasSecret reports whether there is anything in a URL that is not for everybody.
func hasSecret(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return true
	}
	if _, password := u.User.Password(); !password && store.Kind(raw) != "nats" { // its lone name may be a token
		u.User = nil
	}
	return strings.Contains(redact.URL(u.String()), redact.Hidden)
}
