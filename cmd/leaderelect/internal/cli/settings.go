package cli

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
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

	unsynchronized bool
	priority       int
	extendEvery    time.Duration
	warnOnSkew     bool
	kernelClock    bool

	store string // from the environment or the file: the URL where none is given
}

func (c *common) flags(f *pflag.FlagSet) {
	f.StringVar(&c.id, "id", "", "this candidate's name, unique in the election (default host name, pid and a random part)")
	f.DurationVar(&c.term, "term", leaderelection.DefaultTermLength, "how long a lease runs unless it is extended, which happens about twice in it")
	f.DurationVar(&c.skew, "skew", time.Second, "how far any candidate's clock may be from true time; 0: all share one clock")
	f.BoolVar(&c.unsynchronized, "unsynchronized", false, "compare no wall clock with another machine's: for machines whose clocks nobody keeps right; for all candidates of an election, or none")
	f.IntVar(&c.priority, "priority", 0, "be preferred to candidates whose priority is less: after a term of standing by, ask one that has led for four terms to hand over")
	f.DurationVar(&c.extendEvery, "extend-every", 0, "how often a leader extends its lease: cut off from the store it leads on for --term less --skew less this (default half of what a command has: --term less --skew and --grace; half of --term less --skew without one)")
	f.BoolVar(&c.warnOnSkew, "warn-on-clock-skew", false, "lead although this machine's clock is proved to be off by more than --skew: for a store whose clock is the wrong one")
	f.BoolVar(&c.kernelClock, "kernel-clock", false, "do not lead while the kernel itself holds its clock to be off by more than --skew, or nothing to keep it right (Linux; the NTP client has to tell the kernel, as chrony does with rtcsync)")
	f.DurationVar(&c.poll, "poll", 0, "how often to read where the store cannot push changes (default half a term)")
	f.StringSliceVar(&c.hostPort, "host-port", nil, "where clients reach this candidate when it leads; may be repeated; \":PORT\" stands for this machine's addresses")
	f.StringVar(&c.params, "params", "", "what else clients are told about the leader; \"@FILE\" reads it from a file")
	f.StringVar(&c.logFormat, "log-format", "text", "text or json, to standard error")
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
	a.warnOfMistyped(cmd.Root())
	return c.checkTimes()
}

func (c *common) checkTimes() error {
	switch {
	case c.term <= 0:
		return usage("--term is %v, must be positive", c.term)
	case c.skew < 0:
		return usage("--skew is %v, must not be negative", c.skew)
	case c.skew > c.term/2:
		return usage("--term is %v, must be at least twice --skew (2 x %v): less leaves a leader no time to act", c.term, c.skew)
	case c.extendEvery != 0 && (c.extendEvery < c.term/20 || c.extendEvery > (c.term-c.skew)/2):
		return usage("--extend-every is %v, must be from %v (a twentieth of --term) to %v (half of --term less --skew)", c.extendEvery, c.term/20, (c.term-c.skew)/2)
	case c.poll < 0:
		return usage("--poll is %v, must not be negative", c.poll)
	case c.unsynchronized && c.warnOnSkew:
		return usage("--warn-on-clock-skew means nothing with --unsynchronized, which compares no clocks: take one of them away")
	case c.kernelClock && (c.unsynchronized || c.skew == 0):
		return usage("--kernel-clock needs a --skew to compare with: it means nothing with --unsynchronized or --skew 0")
	}
	return nil
}

// fromEnvironment sets the flags that were not given and are in the environment.
func fromEnvironment(cmd *cobra.Command) error {
	// Within the command of another leaderelect the expiry file is that one's: to
	// write there, too, would tell its command a wrong time.
	_, within := os.LookupEnv(envPrefix + "ELECTION")
	inherited := map[string]bool{envPrefix + "EXPIRY_FILE": within}
	var fault error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, there := os.LookupEnv(name)
		if f.Changed || !there || fault != nil || f.Name == "help" || f.Name == "version" || inherited[name] {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			fault = usage("%s=%q in the environment: %v", name, value, err)
		}
	})
	return fault
}

// told are the variables that the command of run finds, and its guard.
var told = []string{"ELECTION", "LEADER_ID", "STORE", "EXPIRY_FILE", "GUARD", "SHARD"}

// warnOfMistyped warns of variables that no command reads. It refuses none: Kubernetes
// makes such names of a service that is called leaderelect.
func (a *app) warnOfMistyped(root *cobra.Command) {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		short, ours := strings.CutPrefix(name, envPrefix)
		if !ours || slices.Contains(told, short) || anyCommandHas(root, strings.ToLower(strings.ReplaceAll(short, "_", "-"))) {
			continue
		}
		a.logger().Warn("the environment has a variable that no setting goes by: is it mistyped?", "variable", name)
	}
}

// fromFile sets the flags that are not set yet and are in the file. A setting of
// another command is left alone; one of none is an error.
func (a *app) fromFile(cmd *cobra.Command, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return usage("--config: %v", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	seen := make(map[string]bool)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
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
	if err := lines.Err(); err != nil {
		return usage("reading --config: %v", err)
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

// logger writes to standard error, in the format and from the level asked for.
func (a *app) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(a.common.logLevel)) // checked by settle
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: a.attr}
	if a.common.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.errOut, o))
	}
	return slog.New(slog.NewTextHandler(a.errOut, o))
}

// url is the store's URL: the first argument, or where there is none the one
// from the environment or the file. It returns the other arguments, too.
func (a *app) url(args []string) (string, []string, error) {
	switch {
	case len(args) > 0:
		return args[0], args[1:], nil
	case a.common.store != "":
		return a.common.store, nil, nil
	}
	return "", nil, usage("no store: give its URL, or set %sSTORE", envPrefix)
}

// candidate is the part of a Config that flags say.
func (a *app) candidate() (leaderelection.Config, error) {
	c := &a.common
	cfg := leaderelection.Config{
		LeaderID:     c.id,
		TermLength:   c.term,
		MaxClockSkew: c.skew,
		SharedClock:  c.skew == 0, // said so: the flag's default is not zero
		PollInterval: c.poll,
		Logger:       a.logger(),

		Unsynchronized:  c.unsynchronized,
		Priority:        c.priority,
		ExtendEvery:     c.extendEvery,
		WarnOnClockSkew: c.warnOnSkew,
	}
	if c.kernelClock {
		if _, err := (clocks.KernelClock{}).ErrorBound(); err != nil {
			return cfg, usage("--kernel-clock: %v", err)
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
				return cfg, usage("--host-port %s: %q is no port", hp, port)
			}
			own, err := leaderelection.SelfHostPorts(port)
			if err != nil {
				return cfg, fmt.Errorf("--host-port %s: %w", hp, err)
			}
			cfg.HostPort = append(cfg.HostPort, own...)
			continue
		}
		if err := checkHostPort(hp); err != nil {
			return cfg, usage("--host-port %q: %w", hp, err)
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

// checkHostPort says what keeps a client from connecting to an address.
func checkHostPort(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.ContainsAny(host, " \t\r\n/") {
		return errors.New("want HOST:PORT, [IPv6]:PORT, or :PORT for this machine's addresses")
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" || port == "0" {
		return fmt.Errorf("%q is no port", port)
	}
	return nil
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
