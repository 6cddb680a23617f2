// Package plan says what a choice of terms and skew means before anybody runs it,
// by running the real campaign in virtual time.
package plan

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// world is virtual time: it stands still while anything runs, and then jumps to
// when the next sleeper wakes.
//
// That nothing runs is read off the Go runtime, as testing/synctest would but
// outside of a test: runtime.Stack stops the world and says of every goroutine
// what it waits for. Where each one that was made since the world was waits for
// another (a channel, a mutex, a condition), none can do anything before time is
// moved on; what waits for the operating system or the real clock counts as
// running. So the steps are sound; that a state is not known to this program only
// makes it wait, and in the end give up.
type world struct {
	epoch  time.Time
	others map[uint64]bool // goroutines that were there before, and take no part
	buffer []byte

	mu       sync.Mutex
	now      time.Duration
	sleepers sleepers
	seq      uint64
}

type sleeper struct {
	at    time.Duration
	seq   uint64 // sleepers of one moment wake in order
	wake  chan struct{}
	index int
}

type sleepers []*sleeper

func (s sleepers) Len() int { return len(s) }
func (s sleepers) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].seq < s[j].seq
}
func (s sleepers) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}
func (s *sleepers) Push(x any) {
	e := x.(*sleeper)
	e.index = len(*s)
	*s = append(*s, e)
}
func (s *sleepers) Pop() any {
	old := *s
	e := old[len(old)-1]
	*s = old[:len(old)-1]
	e.index = -1
	return e
}

func newWorld() *world {
	w := &world{epoch: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), buffer: make([]byte, 64<<10), others: make(map[uint64]bool)}
	w.each(func(id uint64, _ []byte) { w.others[id] = true })
	return w
}

// elapsed is the virtual time since the world began.
func (w *world) elapsed() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// sleep returns true after d of virtual time, or false when ctx has ended.
func (w *world) sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	w.mu.Lock()
	w.seq++
	s := &sleeper{at: w.now + d, seq: w.seq, wake: make(chan struct{})}
	heap.Push(&w.sleepers, s)
	w.mu.Unlock()
	select {
	case <-s.wake:
		return true
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		if s.index >= 0 {
			heap.Remove(&w.sleepers, s.index)
		}
		return false
	}
}

// errStuck says that the simulation cannot go on.
var errStuck = errors.New("the simulation does not come to rest: this is a fault of leaderelect plan")

// run moves time on until done says so, or until the virtual time limit.
func (w *world) run(done func() bool, limit time.Duration) error {
	for {
		if err := w.settle(); err != nil {
			return err
		}
		if done() {
			return nil
		}
		w.mu.Lock()
		if len(w.sleepers) == 0 || w.sleepers[0].at > limit {
			w.mu.Unlock()
			return errLimit
		}
		s := heap.Pop(&w.sleepers).(*sleeper)
		w.now = s.at
		w.mu.Unlock()
		close(s.wake)
	}
}

var errLimit = errors.New("it does not happen")

// settle returns when nothing runs.
func (w *world) settle() error {
	limit := time.Now().Add(10 * time.Second)
	for spins := 0; ; spins++ {
		runtime.Gosched()
		busy := false
		w.each(func(id uint64, state []byte) {
			busy = busy || !w.others[id] && !waits(state)
		})
		if !busy {
			return nil
		}
		if spins > 100 {
			time.Sleep(50 * time.Microsecond) // others need the processor
			if time.Now().After(limit) {
				return errStuck
			}
		}
	}
}

// waits says whether a goroutine in this state can do nothing until another does.
func waits(state []byte) bool {
	for _, s := range []string{"chan receive", "chan send", "select", "sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock",
		"sync.Cond.Wait", "sync.WaitGroup.Wait", "semacquire"} {
		if string(state) == s {
			return true
		}
	}
	return false
}

// each calls f with the id and the state of every goroutine but its own.
func (w *world) each(f func(id uint64, state []byte)) {
	n := runtime.Stack(w.buffer, true)
	for n == len(w.buffer) {
		w.buffer = make([]byte, 2*len(w.buffer))
		n = runtime.Stack(w.buffer, true)
	}
	own := true // comes first
	for text := w.buffer[:n]; ; {
		// goroutine 7 [select, 2 minutes]:
		if rest, found := bytes.CutPrefix(text, []byte("goroutine ")); found && !own {
			head, _, _ := bytes.Cut(rest, []byte("]:\n"))
			number, state, _ := bytes.Cut(head, []byte(" ["))
			number, _, _ = bytes.Cut(number, []byte(" "))
			state, _, _ = bytes.Cut(state, []byte(", "))
			if id, err := strconv.ParseUint(string(number), 10, 64); err == nil {
				f(id, state)
			}
		}
		own = false
		_, next, more := bytes.Cut(text, []byte("\n\n"))
		if !more {
			return
		}
		text = next
	}
}

// clock is a candidate's, which is off by a constant.
type clock struct {
	w   *world
	off time.Duration
}

var (
	_ clocks.Clock     = clock{}
	_ clocks.Monotonic = clock{}
)

func (c clock) Now() time.Time                  { return c.w.epoch.Add(c.w.elapsed() + c.off) }
func (c clock) Monotonic() time.Duration        { return c.w.elapsed() }
func (c clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }
func (c clock) SleepFor(ctx context.Context, d time.Duration) bool {
	return c.w.sleep(ctx, d)
}
func (c clock) SleepUntil(ctx context.Context, t time.Time) bool {
	return c.w.sleep(ctx, c.Until(t))
}
