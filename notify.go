package leaderelection

import (
	"context"
	"sync"
)

// events runs what must be told to user code that the election does not wait
// for (Trace, Logger): one at a time, in order, in a goroutine that exists only
// while there is something to tell.
type events struct {
	mu      sync.Mutex
	queue   []func()
	running bool
	idle    func() // called, without the lock, when the queue has run empty
}

// maxEvents is how many events wait for a Trace or Logger that is stuck.
const maxEvents = 1024

// add queues f; the oldest gives way where too many wait.
func (e *events) add(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) >= maxEvents {
		e.queue = e.queue[1:]
	}
	e.queue = append(e.queue, f)
	if !e.running {
		e.running = true
		go e.run()
	}
}

func (e *events) run() {
	defer func() {
		// Also when a hook ended its goroutine (t.FailNow does).
		e.mu.Lock()
		again := len(e.queue) > 0
		e.running = again
		e.mu.Unlock()
		if again {
			go e.run()
			return
		}
		e.idle()
	}()
	for {
		e.mu.Lock()
		if len(e.queue) == 0 {
			e.queue = nil
			e.mu.Unlock()
			return
		}
		f := e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		f()
	}
}

// busy reports whether something is being told, or waits to be.
func (e *events) busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

// maxWaiting is how many records wait for a callback that is stuck.
const maxWaiting = 128

// deliveries calls a user's callback with records, one at a time and in order,
// in a goroutine that exists only while there are some.
type deliveries struct {
	ctx     context.Context
	call    func(context.Context, RaceEntry)
	idle    func()
	mu      sync.Mutex
	queue   []delivery
	running bool
}

type delivery struct {
	entry *RaceEntry
	call  func(context.Context, RaceEntry)
	merge bool // may be replaced by a later extension of the same leadership
}

// add queues entry for call. An extension that still waits is replaced by a
// later one of its leadership; where too many wait the oldest gives way.
func (d *deliveries) add(next delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.queue); n > 0 && next.merge && d.queue[n-1].merge &&
		d.queue[n-1].entry.ElectionNumber == next.entry.ElectionNumber {
		d.queue[n-1] = next
		return
	}
	if len(d.queue) >= maxWaiting {
		d.queue = d.queue[1:]
	}
	d.queue = append(d.queue, next)
	if !d.running {
		d.running = true
		go d.run()
	}
}

func (d *deliveries) run() {
	defer func() {
		// Also when a callback ended its goroutine (t.FailNow does).
		d.mu.Lock()
		again := len(d.queue) > 0
		d.running = again
		d.mu.Unlock()
		if again {
			go d.run()
			return
		}
		d.idle()
	}()
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.queue = nil
			d.mu.Unlock()
			return
		}
		next := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		entry := next.entry.Clone()
		entry.Token = nil
		next.call(d.ctx, *entry)
	}
}

// drop forgets what waits.
func (d *deliveries) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = nil
}

// busy reports whether a callback is running, or waits to.
func (d *deliveries) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running
}
