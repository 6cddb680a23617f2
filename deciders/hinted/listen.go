package hinted

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
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
