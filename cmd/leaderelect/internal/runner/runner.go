package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
)

// Policy is what happens when a command ends by itself.
type Policy string

// The policies. A command that ends well is started again under each of them.
const (
	Restart  Policy = "restart"  // start it again, after a pause that grows
	StepDown Policy = "stepdown" // where it failed let another lead, for a term at least
	Exit     Policy = "exit"     // where it failed release, and exit with its code
)

// Config is what to run, and how.
type Config struct {
	Args                  []string
	Stdin, Stdout, Stderr *os.File
	Store                 string // for the command's environment
	LeaderID              string
	ExpiryFile            string // empty: one is made
	Times                 Times
	Drain                 time.Duration // between asking to end and killing where the lease is kept meanwhile
	Once                  bool
	Hold                  time.Duration // with Once: the lease is kept this long at least
	OnFailure             Policy
	Delay                 time.Duration // before a command is started again
	Logger                *slog.Logger

	// Resign gives up leadership, but not the campaign.
	Resign func(ctx context.Context)
	// Finish ends the campaign, and the program with code.
	Finish func(code int, why error)
}

// Runner runs the command of one candidate. Elected is its OnElected.
type Runner struct {
	c       Config
	nudge   chan struct{}
	claimed atomic.Bool // by the first reign, or by GiveUp

	mu   sync.Mutex
	p    *proc.Process // the one that runs
	stop syscall.Signal
}

// New returns a runner.
func New(c Config) *Runner {
	return &Runner{c: c, nudge: make(chan struct{}, 1), stop: syscall.SIGTERM}
}

// Extended is for Trace: it has the new end of the view told without delay.
func (r *Runner) Extended(leaderelection.ViewExtended) {
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// Signal passes a signal on, where a command runs.
func (r *Runner) Signal(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.p != nil {
		r.p.Signal(s)
	}
}

// StopBy sets the signal by which the command will be asked to end.
func (r *Runner) StopBy(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop = s
}

// Kill kills the command.
func (r *Runner) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.p != nil {
		r.p.Kill()
	}
}

// Pid is the running command's, or 0.
func (r *Runner) Pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.p == nil {
		return 0
	}
	return r.p.Pid()
}

// GiveUp says that no reign may begin any more, and whether that was in time:
// false where one has.
func (r *Runner) GiveUp() bool { return r.claimed.CompareAndSwap(false, true) }

// Elected is one reign: it returns when the command is dead, and not before.
func (r *Runner) Elected(ctx context.Context, view *leaderelection.TimeView) {
	if !r.claimed.CompareAndSwap(false, true) && r.c.Once {
		return // it ran already, or has given up
	}
	hold := time.Now().Add(r.c.Hold)
	log := r.c.Logger.With("election", uint64(view.ElectionNumber()))
	file, err := newExpiryFile(r.c.ExpiryFile)
	if err == nil {
		defer file.remove()
	}
	for pause := r.c.Delay; ; {
		if !r.room(ctx, view) {
			r.cut(log, ctx)
			return
		}
		began := time.Now()
		status, forced := proc.Status{Code: proc.CodeFailed}, false
		if err == nil {
			err = file.write(view.Get())
		}
		if err != nil {
			status.Failure = fmt.Sprintf("the expiry file: %v", err)
			err = nil
		} else {
			status, forced = r.run(ctx, log, view, file)
		}
		if status.Failure != "" {
			log.Error("the command did not run", "err", status.Failure)
		}
		switch {
		case r.c.Once && forced && errors.Is(context.Cause(ctx), ErrStopped):
			r.c.Finish(status.Code, nil)
			return
		case r.c.Once && forced:
			r.cut(log, ctx)
			return
		case forced || ctx.Err() != nil && !r.c.Once:
			continue
		case r.c.Once:
			wait(ctx, time.Until(hold))
			r.c.Finish(status.Code, nil)
			return
		case status.Code != 0 && r.c.OnFailure == StepDown:
			log.Warn("stepping down, since the command failed", "code", status.Code)
			r.c.Resign(ctx)
			return
		case status.Code != 0 && r.c.OnFailure == Exit:
			r.c.Finish(status.Code, nil)
			return
		}
		if time.Since(began) > 10*r.c.Delay {
			pause = r.c.Delay
		}
		log.Info("starting the command again", "in", pause)
		wait(ctx, pause)
		pause = min(2*pause, 60*r.c.Delay)
	}
}

// cut ends a run that was to happen once, and was cut off.
func (r *Runner) cut(log *slog.Logger, ctx context.Context) {
	cause := context.Cause(ctx)
	if cause == nil {
		cause = leaderelection.ErrExpired
	}
	if r.c.Once && !errors.Is(cause, ErrStopped) {
		r.c.Finish(proc.CodeFailed, fmt.Errorf("leadership ended before the command had: %w", cause))
	}
	log.Debug("no command runs any more", "cause", cause)
}

// deadline is when the command must be killed for it to be dead at the view's
// end.
func (r *Runner) deadline(view *leaderelection.TimeView) proc.Deadline {
	return proc.At(view.Get(), r.c.Times.Span).Sub(r.c.Times.Margin)
}

// room waits until the view leaves time to start a command in, and says whether
// it did so before the reign ended.
func (r *Runner) room(ctx context.Context, view *leaderelection.TimeView) bool {
	for ctx.Err() == nil {
		if view.ValueInFuture() && r.deadline(view).Left() > r.c.Times.Grace+r.c.Times.Margin {
			return true
		}
		r.pause(ctx.Done(), nil)
	}
	return false
}

// look is the longest a runner sleeps before it looks at the view again.
const look = 100 * time.Millisecond

// pause returns when something may have changed.
func (r *Runner) pause(ended, done <-chan struct{}) {
	timer := time.NewTimer(look)
	defer timer.Stop()
	select {
	case <-ended:
	case <-done:
	case <-r.nudge:
	case <-timer.C:
	}
}

// run runs the command once, and returns when all of it is dead: how it ended, and
// whether it was made to.
func (r *Runner) run(ctx context.Context, log *slog.Logger, view *leaderelection.TimeView, file *expiryFile) (proc.Status, bool) {
	end := view.Get()
	p, err := proc.Start(proc.Spec{
		Args: r.c.Args, Env: r.environment(view, file),
		Stdin: r.c.Stdin, Stdout: r.c.Stdout, Stderr: r.c.Stderr,
		Grace: r.c.Times.Grace, Until: r.deadline(view), Late: r.c.Times.Margin / 3, Logger: log,
	})
	if err != nil {
		return proc.Status{Code: proc.CodeFailed, Failure: err.Error()}, false
	}
	log.Info("the command is started", "command", r.c.Args[0])
	r.mu.Lock()
	r.p = p
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.p = nil
		r.mu.Unlock()
	}()
	forced := r.tend(ctx, log, view, file, p, end)
	status := p.Status()
	log.Info("the command has ended", "code", status.Code)
	return status, forced || status.Expired
}

// tend moves the command's deadline on with the view, and ends the command when
// leadership ends; it says whether it did. It waits for nothing but time and the
// command's end.
func (r *Runner) tend(ctx context.Context, log *slog.Logger, view *leaderelection.TimeView, file *expiryFile, p *proc.Process, end time.Time) (forced bool) {
	ended := ctx.Done()
	asked, killed := false, false
	for {
		select {
		case <-p.Done():
			return asked || killed
		default:
		}
		switch alive := view.ValueInFuture(); {
		case !alive && !killed:
			killed = true
			if !asked {
				log.Warn("killing the command: the view is over", "cause", context.Cause(ctx))
			}
			p.Kill()
		case alive && ctx.Err() != nil && !asked:
			asked = true
			r.mu.Lock()
			s := r.stop
			r.mu.Unlock()
			log.Info("asking the command to end", "signal", s, "cause", context.Cause(ctx), "patience", r.c.Drain)
			p.Stop(s, r.c.Drain)
		}
		if asked || killed {
			ended = nil
		}
		if next := view.Get(); next.After(end) {
			end = next
			p.Extend(r.deadline(view))
			if err := file.write(end); err != nil {
				log.Warn("the expiry file cannot be written, and names an earlier time than the true one", "err", err)
			}
		}
		r.pause(ended, p.Done())
	}
}

// environment is the command's: this program's, and what a leader must know.
func (r *Runner) environment(view *leaderelection.TimeView, file *expiryFile) []string {
	own := map[string]string{
		"LEADERELECT_ELECTION":    fmt.Sprint(uint64(view.ElectionNumber())),
		"LEADERELECT_LEADER_ID":   r.c.LeaderID,
		"LEADERELECT_STORE":       r.c.Store,
		"LEADERELECT_EXPIRY_FILE": file.path,
	}
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); own[name] == "" {
			env = append(env, e)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

var (
	// ErrNotElected is why a command that was to run once did not.
	ErrNotElected = errors.New("not elected in time")
	// ErrStopped is wrapped by the cause of a campaign's end where somebody
	// asked this program to end.
	ErrStopped = errors.New("asked to end")
)
