// Package runner is what a leader does that runs a command: it starts the command
// with what it needs to know, keeps telling its guard until when it may live, and
// decides what happens when it ends.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
)

// Policy is what happens when a command ends by itself.
type Policy string

// The policies. A command that ends well is started again under each of them.
const (
	Restart  Policy = "restart"  // start it again, after a pause that grows; after Attempts quick failures in a row, let another lead
	StepDown Policy = "stepdown" // if it failed let another lead, for a term at least
	Exit     Policy = "exit"     // if it failed release, and exit with its code
)

// Attempts is how often a command may fail in a row, soon after its start, before
// another candidate is to lead: it may be able to run it.
const Attempts = 5

// quick is how many delays a command has to run for not to have failed at once.
const quick = 10

// mostDelays is how many delays the pause before another attempt may grow to.
const mostDelays = 60

// Config is what to run, and how.
type Config struct {
	Args                  []string
	Stdin, Stdout, Stderr *os.File
	Store                 string   // for the command's environment; empty: not to be there
	Withheld              []string // variables that the command does not find
	LeaderID              string
	Shard                 string                                     // the one that is owned; empty: an election is led
	Shards                int                                        // how many numbered ones there are; 0: they have names
	LeaseID               func(leaderelection.ElectionNumber) string // of the store's own lease, for the command's environment; nil: none
	ExpiryFile            string                                     // empty: one is made
	Setuid                bool                                       // the command may become another user
	Times                 Times
	Drain                 time.Duration // between asking to end and killing if the lease is kept meanwhile
	Once                  bool
	Single                bool // one leadership only: Finish when it is over
	OnFailure             Policy
	Delay                 time.Duration // before a command is started again
	Logger                *slog.Logger

	// Resign gives up leadership, but not the campaign. Nil: that cannot be done, and a
	// command that fails is started again and again.
	Resign func(ctx context.Context)
	// DropHold is called if others may run the command after the one leadership of Once: nothing of it was begun, or
	// it has not succeeded, with HoldOnSuccess. Nil: there is no hold.
	DropHold      func()
	HoldOnSuccess bool
	// Finish ends the campaign, and the program with code.
	Finish func(code int, why error)
}

// View says until when the command may run.
type View interface {
	Get() time.Time // by the clock of this machine
	ValueInFuture() bool
	ElectionNumber() leaderelection.ElectionNumber // the fencing token
}

// Runner runs the command of one candidate. Elected is its OnElected.
type Runner struct {
	nudge
	c     Config
	begun bool // a command may have run
	well  bool // it has ended by itself, with code 0; of the one leadership of Once
	aside Aside
	file  *expiryFile

	mu   sync.Mutex
	p    *proc.Process // the one that runs
	stop syscall.Signal

	ready *proc.Ready // waits for the next command; nil: none does
	keeps bool        // one is to wait again when a command has ended

	// Of the leadership that is, and kept for the next one.
	failed int           // how often in a row, soon after its start
	pause  time.Duration // before the next attempt
}

// New returns a runner.
func New(c Config) *Runner {
	return &Runner{c: c, file: newExpiryFile(c.ExpiryFile), nudge: make(nudge, 1), stop: syscall.SIGTERM, pause: c.Delay}
}

// Prepare has a guard wait for the next command, so that an election is followed by it at once;
// another one when that has ended; until Close. It reports why there can be none: then no
// command could be run either.
func (r *Runner) Prepare() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keeps = true
	return r.prepare()
}

// prepare has one wait, if that is wanted. R.mu is locked.
func (r *Runner) prepare() (err error) {
	if r.keeps && r.ready == nil {
		r.ready, err = proc.Prepare(r.c.Stdin, r.c.Stdout, r.c.Stderr)
	}
	return err
}

// again has another guard wait. Without one it is started with the next command.
func (r *Runner) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.prepare(); err != nil {
		r.c.Logger.Debug("no guard waits for the command", "err", err)
	}
}

// take is the guard that waits, if one does.
func (r *Runner) take() *proc.Ready {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := r.ready
	r.ready = nil
	return ready
}

// Close ends the guard that waits. No command is to be run any more.
func (r *Runner) Close() {
	r.mu.Lock()
	r.keeps = false
	r.mu.Unlock()
	r.take().Close()
}

// Check reports what would keep a leader from running any command. It is to be
// asked before the campaign begins.
func (r *Runner) Check() error {
	return errors.Join(proc.Check(), r.file.try())
}

// Healthy is for Config.Healthy: it keeps the candidate out of the election for a
// while after its command has failed again and again.
func (r *Runner) Healthy(ctx context.Context) error { return r.aside.Healthy(ctx) }

// nudge says that a view has a new end.
type nudge chan struct{}

// Extended is for Trace: it has the new end of the view told without delay.
func (n nudge) Extended(leaderelection.ViewExtended) {
	select {
	case n <- struct{}{}:
	default:
	}
}

// Signal passes a signal on, if a command runs.
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

// ErrStopped is wrapped by the cause of a campaign's end if somebody asked this program to end.
var ErrStopped = errors.New("asked to end")

// Times are the moments at which a command is asked to end, and killed, as spans
// before the end of a view.
type Times struct {
	// Span is the longest a view lasts without an extension: TermLength less
	// MaxClockSkew.
	Span time.Duration
	// Margin is what lies between killing a command and the view's end: the
	// time in which it has to be dead.
	Margin time.Duration
	// Grace is what lies between asking a command to end and killing it.
	Grace time.Duration
}

// Extend is how often the lease is extended if nothing else is asked for: after half of what a
// command has of a view until it is asked to end. After half of the view itself an outage of
// some seconds would end commands that the lease outlives. The grace leaves it more than a seventh
// of a term, so that it is within what a Config takes.
func (t Times) Extend() time.Duration { return (t.Span - t.Grace - t.Margin) / 2 }

// TimesFor returns the times for an election. A zero grace means a quarter of the
// span, 10 s at most. A grace that leaves an extension less than an eighth of the
// span to be confirmed in is refused: commands would be ended by every hiccup of
// the store.
func TimesFor(term, skew, grace time.Duration) (Times, error) {
	span := term - skew
	t := Times{Span: span, Margin: min(max(span/16, 50*time.Millisecond), time.Second), Grace: grace}
	most := span/8*3 - t.Margin
	if grace == 0 {
		t.Grace = min(span/4, 10*time.Second, most)
	}
	switch {
	case most <= 0:
		return t, fmt.Errorf("--term %v with a skew of %v is too short to run a command in: take a term of %v at least", term, skew, (skew + 200*time.Millisecond).Round(time.Millisecond))
	case grace > most:
		need := skew + (grace+time.Second)/3*8
		return t, fmt.Errorf("--grace %v does not fit into --term %v with a skew of %v: a command that is to be dead when the view ends has %v at most; take that, or a --term of %v",
			grace, term, skew, most.Round(time.Millisecond), need.Round(time.Second))
	}
	return t, nil
}

// Told are the variables that a command finds, apart from what this program's own environment has.
var Told = []string{"LEADERELECT_TOKEN", "LEADERELECT_LEADER_ID", "LEADERELECT_STORE", "LEADERELECT_EXPIRY_FILE", "LEADERELECT_LEASE_ID", "LEADERELECT_SHARD", "LEADERELECT_SHARDS"}

// Environment is a command's: this program's, and what a leader must know. What
// another leaderelect, whose command this is, had to say is not in it; nor is the
// store if that is empty, nor what is withheld.
func Environment(token leaderelection.ElectionNumber, leader, store string, withheld []string, more ...string) []string {
	own := append([]string{fmt.Sprintf("LEADERELECT_TOKEN=%d", uint64(token)), "LEADERELECT_LEADER_ID=" + leader}, more...)
	if store != "" {
		own = append(own, "LEADERELECT_STORE="+store)
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(Told, name) || slices.Contains(withheld, name)
	})
	return append(env, own...)
}

// ErrStandingDown is what Healthy returns for a while after a failure.
var ErrStandingDown = errors.New("standing down after a failure")

// Aside keeps a candidate out of its election for a while, after what it does as leader has
// failed. Its zero value does not. Its methods may be called by several goroutines at once.
type Aside struct {
	mu    sync.Mutex
	why   error
	until time.Time
}

// For keeps the candidate out for d from now on, because of why.
func (a *Aside) For(d time.Duration, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why, a.until = why, time.Now().Add(d)
}

// Healthy is for Config.Healthy: an error while the candidate is to stay out.
func (a *Aside) Healthy(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.why != nil && time.Now().Before(a.until) {
		return fmt.Errorf("%w: %w", ErrStandingDown, a.why)
	}
	a.why = nil
	return nil
}

// leadership is one leadership.
type leadership struct {
	*Runner
	ctx   context.Context
	view  View
	log   *slog.Logger
	alarm *proc.Alarm // nil while it could not be made
}

// Elected is one leadership: it returns when the command is dead, and not before.
func (r *Runner) Elected(ctx context.Context, view *leaderelection.TimeView) { r.Run(ctx, view) }

// Run runs the command for as long as view lasts, and ctx, and returns when it is dead.
func (r *Runner) Run(ctx context.Context, view View) {
	defer func() {
		switch {
		case r.c.DropHold == nil:
		case !r.begun:
			r.c.Logger.Warn("the command was not started: the lease is released without its hold")
			r.c.DropHold()
		case r.c.HoldOnSuccess && !r.well:
			r.c.Logger.Warn("the command has not succeeded: the lease is released without its hold, so that another candidate can continue")
			r.c.DropHold()
		}
	}()
	l := &leadership{Runner: r, ctx: ctx, view: view, log: r.c.Logger.With("token", uint64(view.ElectionNumber()))}
	defer func() {
		_ = l.file.remove(tidy) // the command, which reads it, is dead
		if l.alarm != nil {
			l.alarm.Close()
		}
	}()
	for over := false; !over; {
		if !l.room() {
			l.cut()
			return
		}
		began := time.Now()
		status, forced := l.run()
		if !status.Unstarted {
			l.begun = true
		}
		if status.Failure != "" {
			l.log.Error("the command did not run", "err", status.Failure)
		}
		if !l.c.Once && !l.c.Single && !errors.Is(context.Cause(l.ctx), ErrStopped) {
			l.again()
		}
		over = l.after(status, forced, time.Since(began))
	}
}

// tidy is how long a leadership that is over lasts for the expiry file to be removed.
const tidy = 100 * time.Millisecond

// after decides what follows when the command has ended, and waits until it is to
// be started again. It reports whether the leadership is over.
func (l *leadership) after(status proc.Status, forced bool, took time.Duration) (over bool) {
	stopped := errors.Is(context.Cause(l.ctx), ErrStopped)
	switch {
	case l.c.Once && forced && stopped && !status.Unstarted:
		l.c.Finish(status.Code, nil)
		return true
	case forced && stopped && status.Killed && status.Code == codeKilled:
		l.c.Finish(codeKilled, nil)
		return true
	case l.c.Once && forced:
		l.cut()
		return true
	case forced || l.ctx.Err() != nil && !l.c.Once:
		return false // no room is left, or there is again
	case l.c.Once:
		l.well = status.Code == 0
		l.c.Finish(status.Code, nil)
		return true
	case status.Code != 0 && l.c.OnFailure == Exit:
		l.c.Finish(status.Code, nil)
		return true
	}
	return l.retry(status, took)
}

// codeKilled is what a program that had to be killed exits with.
const codeKilled = 128 + int(syscall.SIGKILL)

// retry waits before the command is started again; or after too many failures, lets
// another candidate lead, and stays out for that time: it reports whether it has.
func (l *leadership) retry(status proc.Status, took time.Duration) (over bool) {
	if took > quick*l.c.Delay {
		l.failed, l.pause = 0, l.c.Delay
	}
	if l.failed++; status.Code == 0 {
		l.failed = 0
	}
	pause := l.pause
	l.pause = min(2*pause, mostDelays*l.c.Delay)
	if l.c.Resign != nil && l.failed >= Attempts || l.failed > 0 && l.c.OnFailure == StepDown {
		why := fmt.Errorf("the command failed with code %d, %d times in a row", status.Code, l.failed)
		if l.c.Single {
			l.c.Finish(status.Code, why)
			return true
		}
		l.log.Warn("stepping down, since the command failed: another candidate may be able to run it; this one stays out for a term, or for back_after if that is longer", "code", status.Code, "times", l.failed, "back_after", pause)
		l.aside.For(pause, why)
		l.c.Resign(l.ctx)
		return true
	}
	l.log.Info("starting the command again", "in", pause)
	clocks.System().SleepFor(l.ctx, pause)
	return false
}

// cut ends a run that was to happen once, and was cut off.
func (l *leadership) cut() {
	cause := context.Cause(l.ctx)
	if cause == nil {
		cause = leaderelection.ErrExpired
	}
	if (l.c.Once || l.c.Single) && !errors.Is(cause, ErrStopped) {
		l.c.Finish(proc.CodeFailed, fmt.Errorf("leadership ended before the command had: %w", cause))
	}
	l.log.Debug("no command runs any more", "cause", cause)
}

// deadline is when the command must be killed for it to be dead at the view's
// end.
func (l *leadership) deadline() proc.Deadline {
	return proc.At(l.view.Get(), l.c.Times.Span).Sub(l.c.Times.Margin)
}

// room waits until the view leaves time to start a command in, and reports whether
// it did so before the leadership ended. Only an extension makes room.
func (l *leadership) room() bool {
	for l.ctx.Err() == nil {
		if l.view.ValueInFuture() && l.deadline().Left() > l.c.Times.Grace+l.c.Times.Margin {
			return true
		}
		select {
		case <-l.ctx.Done():
		case <-l.nudge:
		}
	}
	return false
}

// prepare makes what a command needs apart from itself. A command is not started without the file, or
// with one that a former leadership has left.
func (l *leadership) prepare() (err error) {
	if l.alarm == nil {
		if l.alarm, err = proc.NewAlarm(); err != nil {
			return err
		}
	}
	return l.file.begin(l.ctx, min(l.file.patience, l.c.Times.Extend()), l.view.Get())
}

// run runs the command once, and returns when all of it is dead: how it ended, and
// whether it was made to.
func (l *leadership) run() (proc.Status, bool) {
	end := l.view.Get()
	if err := l.prepare(); err != nil && l.ctx.Err() != nil {
		return proc.Status{Code: proc.CodeFailed, Unstarted: true}, true
	} else if err != nil {
		return proc.Status{Code: proc.CodeFailed, Failure: err.Error(), Unstarted: true}, false
	}
	p, err := proc.Start(proc.Spec{
		Args: l.c.Args, Env: l.environment(),
		Stdin: l.c.Stdin, Stdout: l.c.Stdout, Stderr: l.c.Stderr,
		Grace: l.c.Times.Grace, Until: l.deadline(), Late: l.c.Times.Margin / 3,
		Setuid: l.c.Setuid, Remove: l.file.all(), Logger: l.log, Ready: l.take(),
	})
	if err != nil {
		return proc.Status{Code: proc.CodeFailed, Failure: err.Error(), Unstarted: true}, false
	}
	l.log.Info("the command is started", "command", l.c.Args[0])
	l.runs(p)
	defer l.runs(nil)
	forced := l.tend(p, end)
	status := p.Status()
	if status.Killed {
		l.log.Warn("the command, or what it had started, did not end in the time that it had, and was killed")
	}
	level := slog.LevelInfo
	if status.Code != 0 && (!forced || status.Expired) { // else it was asked to end, which is said above
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "the command has ended", "code", status.Code)
	return status, forced || status.Expired
}

// drainLook is how often the view is looked at while the command is ending.
const drainLook = 100 * time.Millisecond

// tend moves the command's deadline on with the view, and ends the command when
// leadership ends; it reports whether it did. It waits only for time and the
// command's end, and while all is well for that alone.
func (l *leadership) tend(p *proc.Process, end time.Time) (forced bool) {
	ended := l.ctx.Done()
	asked, killed := false, false
	for {
		select {
		case <-p.Done():
			return asked || killed
		default:
		}
		switch alive := l.view.ValueInFuture(); {
		case !alive && !killed:
			killed = true
			if !asked {
				l.log.Warn("killing the command: the view is over", "cause", context.Cause(l.ctx))
			}
			p.Kill()
		case alive && l.ctx.Err() != nil && !asked:
			asked = true
			l.ask(p)
		}
		if next := l.view.Get(); next.After(end) {
			end = next
			p.Extend(l.deadline())
			l.file.tell(end, l.log)
		}
		look := proc.At(end, l.c.Times.Span)
		if asked || killed {
			ended = nil
			look = proc.At(time.Now().Add(drainLook), drainLook)
		}
		l.alarm.Set(look)
		select {
		case <-ended:
		case <-p.Done():
		case <-l.nudge:
		case <-l.alarm.C:
		}
	}
}

// ask asks the command to end.
func (l *leadership) ask(p *proc.Process) {
	l.mu.Lock()
	s := l.stop
	l.mu.Unlock()
	l.log.Info("asking the command to end", "signal", s, "cause", context.Cause(l.ctx), "patience", l.c.Drain)
	p.Stop(s, l.c.Drain)
}

// runs notes the command that runs, or nil.
func (l *leadership) runs(p *proc.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.p = p
}

// environment is the command's.
func (l *leadership) environment() []string {
	more := []string{"LEADERELECT_EXPIRY_FILE=" + l.file.file}
	if l.c.Shard != "" {
		more = append(more, "LEADERELECT_SHARD="+l.c.Shard)
	}
	if l.c.Shards > 0 {
		more = append(more, fmt.Sprintf("LEADERELECT_SHARDS=%d", l.c.Shards))
	}
	if l.c.LeaseID != nil {
		if id := l.c.LeaseID(l.view.ElectionNumber()); id != "" {
			more = append(more, "LEADERELECT_LEASE_ID="+id)
		}
	}
	return Environment(l.view.ElectionNumber(), l.c.LeaderID, l.c.Store, l.c.Withheld, more...)
}
