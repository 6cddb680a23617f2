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
