package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
	"github.com/c8e606e4/leaderelection/lifeline"
)

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
	case f.drain < 0:
		return usage("--drain is %v, must not be negative", f.drain)
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
