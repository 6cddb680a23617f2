package runner

import (
	"context"
	"errors"
	"log/slog"
	"os"
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
	c       Config
	nudge   chan struct{}
	claimed atomic.Bool // by the first leadership, or by GiveUp
	begun   atomic.Bool // a command may have run
	well    bool        // it has ended by itself, with code 0; of the one leadership of Once
	aside   Aside
	file    *expiryFile

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
	return &Runner{c: c, file: newExpiryFile(c.ExpiryFile), nudge: make(chan struct{}, 1), stop: syscall.SIGTERM, pause: c.Delay}
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

// Extended is for Trace: it has the new end of the view told without delay.
func (r *Runner) Extended(leaderelection.ViewExtended) {
	select {
	case r.nudge <- struct{}{}:
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

// GiveUp says that no leadership may begin any more, and whether that was in time:
// false if one has.
func (r *Runner) GiveUp() bool { return r.claimed.CompareAndSwap(false, true) }

var (
	// ErrNotElected is why a command that was to run once did not.
	ErrNotElected = errors.New("not elected in time")
	// ErrStopped is wrapped by the cause of a campaign's end if somebody
	// asked this program to end.
	ErrStopped = errors.New("asked to end")
)
