package hinted

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/c8e606e4/leaderelection"
)

const (
	// burst is how many hints are answered at once after a quiet time: those of a
	// release and of the acquisition that follows, and some to spare.
	burst = 4
	// stopTime is how long the end of a feed waits for its Hints to return.
	stopTime = time.Second
	// shortest and longest are the bounds of a poll interval that follows from
	// a record.
	shortest, longest = 10 * time.Millisecond, 30 * time.Minute
)

// Changes implements leaderelection.ChangeFeed. It fails where Hints or a read does.
// States that follow each other faster than they are read are merged, and a record older
// than one that it has yielded is no news.
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

// follow returns nil where the loop was left.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry, error) bool) error {
	if err := d.check(); err != nil {
		return err
	}
	l := listen(ctx, d.hints)
	defer l.stop()
	p := pace{every: d.opts.MinInterval}
	var last leaderelection.RaceEntry // without what belongs to the consumer
	interval := d.interval(leaderelection.DefaultTermLength)
	for first := true; ; first = false {
		begun := time.Now()
		e, err := d.read(ctx, interval)
		if err != nil {
			return err
		}
		interval = d.interval(e.TermLength)
		if first || e.Compare(&last) > 0 {
			last.ElectionNumber, last.Extension = e.ElectionNumber, e.Extension
			if !yield(e, nil) {
				return nil
			}
		}
		if err := l.wait(ctx, &p, begun.Add(interval)); err != nil {
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

// listener runs Hints.
type listener struct {
	hint  chan struct{} // full: there was one since the last read began
	ended chan error
	stop  func()
}

func listen(ctx context.Context, hints Hints) *listener {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{hint: make(chan struct{}, 1), ended: make(chan error, 1)}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		l.ended <- hints(ctx, func() {
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

// wait returns nil when it is time to read: when poll has come, or there is a hint and
// the pace allows for it.
func (l *listener) wait(ctx context.Context, p *pace, poll time.Time) error {
	timer := time.NewTimer(time.Until(poll))
	defer timer.Stop()
	hint := l.hint
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-l.ended:
			if err == nil {
				err = errors.New("it returned before its ctx ended")
			}
			return fmt.Errorf("leaderelection/hinted: the source of hints: %w", err)
		case <-hint:
			now := time.Now()
			if at := p.take(now); at.Before(poll) {
				timer.Reset(at.Sub(now))
			}
			hint = nil
		case <-timer.C:
			select { // what came until now is answered by the read that begins
			case <-l.hint:
			default:
			}
			return nil
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
