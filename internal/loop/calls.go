// Package loop has what a loop needs that waits for nothing but time and events, and knows nothing of elections: a mailbox
// for what happens elsewhere, queues for calls of user code, both times of a clock, pauses of retries, and a log of outages
// that takes few lines.
package loop

import (
	"sync"
	"time"
)

// Calls makes calls one at a time, in order, in a goroutine that exists only while there are calls
// to make. Its methods may be called by any number of goroutines.
type Calls struct {
	Limit int    // how many may wait for one that is stuck
	Idle  func() // called, without the lock, when none is left; may be nil

	mu      sync.Mutex
	queue   []func()
	running bool

	done  bool          // one has returned since somebody looked
	seen  bool          // one was being made, or waited to be, when somebody looked last
	since time.Duration // when that was seen first
}

// Add queues a call. If too many wait, the oldest is dropped.
func (q *Calls) Add(f func()) { q.Put(f, false) }

// Put is Add. If it replaces, it takes the place of the call that was added last and still waits.
func (q *Calls) Put(f func(), replaces bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch n := len(q.queue); {
	case replaces && n > 0:
		q.queue = q.queue[:n-1]
	case n >= q.Limit:
		q.queue = q.queue[1:]
	}
	q.queue = append(q.queue, f)
	if !q.running {
		q.running = true
		go q.run()
	}
}

func (q *Calls) run() {
	defer func() {
		// This runs even if a call ended its goroutine, as t.FailNow does.
		q.mu.Lock()
		again := len(q.queue) > 0
		q.running = again
		q.mu.Unlock()
		if again {
			go q.run()
			return
		}
		if q.Idle != nil {
			q.Idle()
		}
	}()
	for {
		q.mu.Lock()
		if len(q.queue) == 0 {
			q.queue = nil
			q.mu.Unlock()
			return
		}
		f := q.queue[0]
		q.queue = q.queue[1:]
		q.mu.Unlock()
		f()
		q.mu.Lock()
		q.done = true
		q.mu.Unlock()
	}
}

// Look returns whether a call is being made, or waits to be, and since when that call has been seen. Times are elapsed
// times of any clock; only one goroutine may look.
func (q *Calls) Look(now time.Duration) (since time.Duration, running bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.running || !q.seen || q.done {
		q.since = now
	}
	q.seen, q.done = q.running, false
	return q.since, q.running
}

// Busy reports whether a call is being made, or waits to be.
func (q *Calls) Busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running
}

// Drop drops the calls that wait.
func (q *Calls) Drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = nil
}

// InTurn returns a hook that calls one and then other. Either may be nil.
func InTurn[E any](one, other func(E)) func(E) {
	switch {
	case one == nil:
		return other
	case other == nil:
		return one
	}
	return func(e E) { one(e); other(e) }
}

// Go runs f in a goroutine of its own, and then done, also if f ends its goroutine, as t.FailNow does.
func Go(f, done func()) {
	go func() {
		defer done()
		f()
	}()
}
