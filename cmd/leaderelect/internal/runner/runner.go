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
	most := span*3/8 - t.Margin
	if grace == 0 {
		t.Grace = min(span/4, 10*time.Second, most)
	}
	switch {
	case most <= 0:
		return t, fmt.Errorf("--term %v with a skew of %v is too short to run a command in: take a term of %v at least", term, skew, (skew + 200*time.Millisecond).Round(time.Millisecond))
	case grace > most:
		need := skew + (grace+time.Second)*8/3
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
