package cli

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
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
