package redis

import (
	"context"
	"iter"
	"strings"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Changes implements leaderelection.ChangeFeed by a subscription. It fails when
// the connection breaks, and when the server does not answer after a silence. A
// consumer that is too slow for the server's client-output-buffer-limit loses
// its connection, too.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	s, err := within.Do(ctx, d.b.calls, func() (*subscription, error) {
		client, err := d.b.master(ctx)
		if err != nil {
			return nil, err
		}
		return d.b.opts.Feeds.subscribe(ctx, client, d.b.opts.Channel, d.b.opts.FeedSilence)
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
	for yield(last) {
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
	e, err := d.election.Entry(store.Stored[version]{Data: []byte(rec), At: version(v)})
	if err != nil || v == "" || d.b.doubtful(e) {
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
