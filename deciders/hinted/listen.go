package hinted

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

const (
	// stopTime is how long the end of a feed waits for its Hints to return.
	stopTime = time.Second
	// A source that fails is tried again after firstPause, then after twice that, up
	// to lastPause; one that has lasted longer than that begins again.
	firstPause, lastPause = time.Second, time.Minute
)

// source is Hints, with pauses if it fails. The feeds of a Decider share them.
type source struct {
	hints Hints
	mu    sync.Mutex
	pause time.Duration
	next  time.Time // when it may be tried
}

// run runs Hints when that is due, and returns how it ended.
func (s *source) run(ctx context.Context, changed func()) error {
	s.mu.Lock()
	next := s.next
	s.mu.Unlock()
	due := time.NewTimer(time.Until(next))
	defer due.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-due.C:
	}
	begun := time.Now()
	err := s.hints(ctx, changed)
	if ctx.Err() != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(begun) > lastPause {
		s.pause = 0
	}
	s.pause = min(max(2*s.pause, firstPause), lastPause)
	s.next = time.Now().Add(s.pause)
	if err == nil {
		err = errors.New("it returned before its ctx ended")
	}
	return fmt.Errorf("leaderelection/hinted: the source of hints: %w", err)
}

// listener runs Hints.
type listener struct {
	hint  chan struct{} // full: there was one since the last read began
	ended chan error
	stop  func()
}

func listen(ctx context.Context, s *source) *listener {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{hint: make(chan struct{}, 1), ended: make(chan error, 1)}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		l.ended <- s.run(ctx, func() {
			select {
			case l.hint <- struct{}{}:
			default:
			}
		})
	}()
	l.stop = func() {
		cancel()
		timeout := time.NewTimer(stopTime)
		defer timeout.Stop()
		select {
		case <-returned:
		case <-timeout.C:
		}
	}
	return l
}

// wait returns when it is time to read: when poll has come, or there is a hint and the pace
// allows for it. It reports whether there was one.
func (l *listener) wait(ctx context.Context, p *pace, poll time.Time) (hinted bool, err error) {
	timer := time.NewTimer(time.Until(poll))
	defer timer.Stop()
	hint := l.hint
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case err := <-l.ended:
			return false, err
		case <-hint:
			now := time.Now()
			if at := p.take(now); at.Before(poll) {
				timer.Reset(at.Sub(now))
			}
			hint, hinted = nil, true
		case <-timer.C:
			select { // what came until now is answered by the read that begins
			case <-l.hint:
				hinted = true
			default:
			}
			return hinted, nil
		}
	}
}

// pace allows for a burst of reads, and after that for one in each time every.
type pace struct {
	every time.Duration
	even  time.Time // when all that has been taken is made good
}

// take returns when the next read may begin, which may have been, and counts it.
func (p *pace) take(now time.Time) time.Time {
	if p.even.Before(now) {
		p.even = now
	}
	p.even = p.even.Add(p.every)
	return p.even.Add(-burst * p.every)
}

const (
	// burst is how many hints are answered at once after a quiet time: those of a
	// release and of the acquisition that follows, and some to spare.
	burst = 4
	// shortest and longest are the bounds of a poll interval that follows from
	// a record.
	shortest, longest = 10 * time.Millisecond, 30 * time.Minute
)

// Changes implements leaderelection.ChangeFeed. It fails if Hints or a read does. It merges states
// that follow each other faster than it reads them, and never yields a record older than one that
// it has yielded.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		if ctx.Err() != nil {
			return
		}
		if err := d.follow(ctx, yield); err != nil && ctx.Err() == nil {
			yield(nil, err)
		}
	}
}

// follow returns nil if the loop was left.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry, error) bool) error {
	if err := d.check(); err != nil {
		return err
	}
	l := listen(ctx, &d.source)
	defer l.stop()
	p := pace{every: d.opts.MinInterval}
	var last leaderelection.RaceEntry // without what belongs to the consumer
	interval := d.interval(leaderelection.DefaultTermLength)
	for first, hinted := true, false; ; first = false {
		begun := time.Now()
		e, err := d.read(ctx, interval)
		if err != nil {
			return err
		}
		interval = d.interval(e.TermLength)
		look := begun.Add(interval)
		if news := first || e.Compare(&last) > 0; news {
			last.ElectionNumber, last.Extension = e.ElectionNumber, e.Extension
			if !yield(e, nil) {
				return nil
			}
		} else if again := begun.Add(d.opts.MinInterval); hinted && again.Before(look) {
			look = again // the read may have lagged behind what it was hinted at
		}
		if hinted, err = l.wait(ctx, &p, look); err != nil {
			return err
		}
	}
}

// interval is how long to go without a read, where the record's term is this.
func (d *Decider) interval(term time.Duration) time.Duration {
	switch {
	case d.opts.PollInterval > 0:
		return max(d.opts.PollInterval, shortest)
	case term <= 0:
		term = leaderelection.DefaultTermLength
	}
	return min(max(term/2, shortest), longest)
}

// read reads. A store that does not answer must not silence the feed: the candidate
// takes over.
func (d *Decider) read(ctx context.Context, interval time.Duration) (*leaderelection.RaceEntry, error) {
	limit := max(interval, time.Second)
	reading, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e, err := d.decider.ReadCurrent(reading)
	switch {
	case err == nil && e == nil:
		return nil, errors.New("leaderelection/hinted: ReadCurrent returned nil without an error")
	case err != nil && ctx.Err() == nil && reading.Err() != nil:
		return nil, fmt.Errorf("leaderelection/hinted: no answer within %v: %w", limit, err)
	}
	return e, err
}

// Signal passes each hint on to all feeds of a process, for a source that tells only one listener.
// Give its Hints to NewDecider, and call Changed for each change: in the handler of a webhook, or a
// loop over a channel or over the messages of a queue.
//
//	var signal hinted.Signal
//	http.HandleFunc("POST /changed", func(http.ResponseWriter, *http.Request) { signal.Changed() })
//	decider := hinted.NewDecider(polled, signal.Hints, nil)
//
// The zero Signal is ready, and must not be copied. Its methods may be called by several goroutines
// at once. A Signal cannot know that its source has failed: then only the feeds' own polls find
// changes.
type Signal struct {
	mu        sync.Mutex
	listeners map[*func()]struct{}
}

// Changed is a hint to all listeners. It never blocks.
func (s *Signal) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for changed := range s.listeners {
		(*changed)()
	}
}

// Hints is a Hints. It listens until ctx ends, and does not fail.
func (s *Signal) Hints(ctx context.Context, changed func()) error {
	s.mu.Lock()
	if s.listeners == nil {
		s.listeners = map[*func()]struct{}{}
	}
	s.listeners[&changed] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, &changed)
	}()
	changed() // for what was written before it listened
	<-ctx.Done()
	return nil
}

const (
	// announceTime is how long an announcement may take.
	announceTime = time.Second
	// announceWait is how long a write waits for it.
	announceWait = time.Second / 10
)

// announce tells others of a write, and waits for that, but not for long, nor if an earlier one is
// still being announced: then all that is written meanwhile is announced once more.
func (d *Decider) announce() {
	if d.opts.Announce == nil {
		return
	}
	earlier, done := d.telling.Swap(true), make(chan struct{})
	d.tell.Add(func() {
		defer close(done)
		d.telling.Store(true)
		defer d.telling.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), announceTime)
		defer cancel()
		d.opts.Announce(ctx)
	})
	if earlier {
		return
	}
	timeout := time.NewTimer(announceWait)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
}
