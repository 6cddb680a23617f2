package redis

import (
	"context"
	"iter"
	"strings"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Changes implements leaderelection.ChangeFeed by a subscription. It fails when
// the connection breaks, and when the server does not answer after a silence. A
// consumer that is too slow for the server's client-output-buffer-limit loses
// its connection, too.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		if ctx.Err() != nil {
			return
		}
		if err := d.follow(ctx, yield); err != nil && ctx.Err() == nil {
			yield(nil, d.failed(ctx, "following", err))
		}
	}
}

// follow returns nil where the loop was left.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry, error) bool) error {
	if err := d.check(); err != nil {
		return err
	}
	s, err := within.Do(ctx, d.calls, func() (*subscription, error) {
		client, err := d.master(ctx)
		if err != nil {
			return nil, err
		}
		return d.opts.Feeds.subscribe(ctx, client, d.opts.Channel, d.opts.FeedSilence)
	})
	if err != nil {
		return err
	}
	defer s.Close()

	last, err := d.read(ctx) // after the subscription: nothing falls between
	if err != nil {
		return err
	}
	given := *last
	for yield(last, nil) {
		for last = nil; last == nil; {
			text, err := s.next(ctx)
			if err != nil {
				return err
			}
			if last, err = d.pushed(ctx, text, &given); err != nil {
				return err
			}
		}
		given = *last
	}
	return nil
}

// pushed is the record in a message, or nil where it is not news.
func (d *Decider) pushed(ctx context.Context, text string, given *leaderelection.RaceEntry) (*leaderelection.RaceEntry, error) {
	v, rec, _ := strings.Cut(text, "\n")
	e, err := d.entry(answer{status: done, version: version(v), record: rec})
	if err != nil || d.doubtful(version(v), e) {
		// Somebody else's message, which tells nothing; or a write of one's
		// own that waits for the replicas, as reading does.
		if e, err = d.read(ctx); err != nil {
			return nil, err
		}
	}
	if e.Token == given.Token || e.Compare(given) < 0 {
		return nil, nil // published before it was read
	}
	return e, nil
}
