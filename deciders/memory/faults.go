package memory

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// Kind is what a call asks of the store.
type Kind int

// The kinds of calls.
const (
	Read  Kind = iota // ReadCurrent
	Write             // WriteEntry
	Feed              // a record that a feed of Changes is about to deliver
)

// String returns the kind in words.
func (k Kind) String() string {
	switch k {
	case Read:
		return "read"
	case Write:
		return "write"
	case Feed:
		return "feed"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Op is a call that a Fault may hit.
type Op struct {
	Kind Kind
	// Entry is a copy of what is about to be written or delivered. It is nil for a Read.
	Entry *leaderelection.RaceEntry
}

// ErrLost is the error of LoseRequests and LoseAnswers: a connection that broke. As with any such
// error, a write may or may not have happened.
var ErrLost = errors.New("connection lost (injected)")

// Fault is what happens to one call. The zero Fault does nothing. If several fields are set, they
// take effect in the order of this list.
type Fault struct {
	// Hang, if not nil, holds the call until the channel is closed. Meanwhile the call ignores
	// its ctx, as in a badly made client. Then it goes on: a write happens then, however late
	// that is.
	Hang <-chan struct{}
	// Delay is how long the request takes. If a call's ctx ends before that, the call returns,
	// and its request never arrives.
	Delay time.Duration
	// Foretold, if positive, makes every feed of the election show a write that long before it
	// happens, as in a store that pushes what it has not committed yet. If the write then does
	// not happen (because of Err, or since it lost the race), it was undone: the feeds go on
	// with the record as it is.
	Foretold time.Duration
	// Err, if not nil, is the call's error, instead of the store's response. A feed ends with
	// it.
	Err error
	// Lands says that the request reaches the store despite Err: a lost response. With
	// leaderelection.ErrLostRace as Err, the client itself has retried a write that has landed.
	Lands bool
	// Late, if positive, makes a write (also) reach the store that long after the call began,
	// whatever became of the call meanwhile: a delayed packet. It is still conditional. Set Err
	// as well, or the write arrives twice.
	Late time.Duration
	// AnswerDelay is how long the response takes. If a call's ctx ends before that, the call
	// returns, but its request has happened.
	AnswerDelay time.Duration
}

// none reports whether f is no fault.
func (f *Fault) none() bool {
	return f.Hang == nil && f.Delay <= 0 && f.Foretold <= 0 && f.Err == nil && !f.Lands && f.Late <= 0 && f.AnswerDelay <= 0
}

// request is the way to the store: an error means that it was not reached. Tell has
// feeds tell of a write; nil when it is none.
func (f *Fault) request(ctx context.Context, s *election, tell func()) error {
	if f.Hang != nil {
		<-f.Hang
	}
	if err := s.wait(ctx, f.Delay); err != nil {
		return err
	}
	if tell != nil && f.Foretold > 0 {
		tell()
		if err := s.wait(ctx, f.Foretold); err != nil {
			return err
		}
	}
	if f.Err != nil && !f.Lands {
		if err := s.wait(ctx, f.AnswerDelay); err != nil {
			return err
		}
		return f.Err
	}
	return nil
}

// answer is the way back.
func (f *Fault) answer(ctx context.Context, s *election) error {
	if err := s.wait(ctx, f.AnswerDelay); err != nil {
		return err
	}
	return f.Err
}

// wait returns after d, or with the error of ctx as soon as that ends.
func (s *election) wait(ctx context.Context, d time.Duration) error {
	if d > 0 && !s.clock.SleepFor(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// later calls f after d. On the system's clock no goroutine waits for that, so that
// a bubble may end before.
func (s *election) later(d time.Duration, f func()) {
	if s.clock == clocks.System() {
		time.AfterFunc(d, f)
		return
	}
	go func() {
		if s.clock.SleepFor(context.Background(), d) {
			f()
		}
	}()
}

// Faults decides which Fault hits a call. It may be called by several goroutines at once. It may
// count, look at op.Entry, roll dice, or read and replace the record. The functions of this package
// make the common ones. Write your own for the rest.
type Faults func(op Op) Fault

// Inject lets f decide from now on what happens to each call of this handle (and of its Polled). It
// replaces earlier faults. Nil: no faults. Calls that are under way, and a feed that waits for
// news, keep their faults.
func (d *Decider) Inject(f Faults) {
	if f == nil {
		d.faults.Store(nil)
		return
	}
	d.faults.Store(&f)
}

// fault asks what happens to a call. Entry is copied.
func (d *Decider) fault(k Kind, entry *leaderelection.RaceEntry) Fault {
	f := d.faults.Load()
	if f == nil {
		return Fault{}
	}
	op := Op{Kind: k}
	if entry != nil {
		op.Entry = entry.Clone()
	}
	return (*f)(op)
}

// Always does f to each call.
func Always(f Fault) Faults { return func(Op) Fault { return f } }

// Slow delays each call by delay, half before and half after the store does its
// part.
func Slow(delay time.Duration) Faults {
	return Always(Fault{Delay: delay / 2, AnswerDelay: delay - delay/2})
}

// Fail answers each call with err, without asking the store. For an error that no retry can help,
// let err wrap leaderelection.ErrPermanent.
func Fail(err error) Faults { return Always(Fault{Err: err}) }

// LoseRequests answers each call with ErrLost, and no request reaches the store.
func LoseRequests() Faults { return Fail(ErrLost) }

// LoseAnswers lets each request reach the store, and answers with ErrLost: a
// write happens, and its writer does not know.
func LoseAnswers() Faults { return Always(Fault{Err: ErrLost, Lands: true}) }

// Undo makes feeds show each write for a while. Then it undoes the write and answers with ErrLost:
// the candidate got news of something that never happened. A store's feed may do so, see
// leaderelection.ChangeFeed.
func Undo(after time.Duration) Faults {
	return Always(Fault{Foretold: after, Err: ErrLost}).On(Write)
}

// Hang holds each call until release is closed, whatever becomes of its ctx: a store or client that
// neither answers nor lets go. After that the call goes on as though nothing had happened.
func Hang(release <-chan struct{}) Faults { return Always(Fault{Hang: release}) }

// On limits f to calls of these kinds.
func (f Faults) On(kinds ...Kind) Faults {
	return func(op Op) Fault {
		for _, k := range kinds {
			if op.Kind == k {
				return f(op)
			}
		}
		return Fault{}
	}
}

// Times limits f to its first n faults; calls that f leaves alone do not count.
func (f Faults) Times(n int) Faults {
	var met atomic.Int64
	return func(op Op) Fault {
		if met.Load() >= int64(n) {
			return Fault{}
		}
		fault := f(op)
		if fault.none() || met.Add(1) > int64(n) {
			return Fault{}
		}
		return fault
	}
}
