package consul

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Changes implements leaderelection.ChangeFeed by blocking queries, one after the other. It shows
// only what is committed. It ends with an error if a query fails, or if the key holds something
// that is not our record.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

// A query that is answered at once, and tells nothing new, is followed by a pause, each
// twice as long as the one before: not every server waits, and no proxy must.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// patience is how long an answer may take in addition to what the server was asked to wait.
const patience = 10 * time.Second

// follow returns when yield has returned false, and else with an error.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	var (
		told  token
		since uint64 // the index of what was told
		after uint64 // that to wait for a greater one of; 0: ask for the record as it is
		pause time.Duration
	)
	for first := true; ; {
		begun := time.Now()
		s, index, err := d.b.query(ctx, after)
		if err != nil {
			return err
		}
		// An index that goes back means that the servers were restored, or that this one
		// lags: what it shows is not believed before a consistent read says so.
		back := index < after
		news := !back && (first || s.At != told)
		if news {
			e, err := d.election.Entry(s)
			if err != nil {
				return err
			}
			if !yield(e) {
				return nil
			}
		}
		switch {
		case news && index > since, time.Since(begun) > d.b.opts.FeedWait/2:
			pause = 0
		default:
			pause = min(max(2*pause, firstPause), lastPause)
		}
		if after = index; back {
			after = 0
		}
		if news {
			told, since, first = s.At, index, false
		}
		if !clocks.System().SleepFor(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// query is read, and does not wait for an answer for ever.
func (b *backend) query(ctx context.Context, after uint64) (s store.Stored[token], index uint64, err error) {
	wait := patience
	if after > 0 {
		wait += b.opts.FeedWait + b.opts.FeedWait/16
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errSilent)
	defer cancel()
	s, index, err = b.read(ctx, after)
	if err != nil && context.Cause(ctx) == errSilent {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	return s, index, err
}
