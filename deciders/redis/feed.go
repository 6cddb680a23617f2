package redis

import (
	"context"
	"iter"
	"strings"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/redis/internal/lines"
	"github.com/c8e606e4/leaderelection/deciders/redis/internal/script"
)

// Changes implements leaderelection.ChangeFeed by a subscription. It fails if the connection
// breaks, and if the server does not answer after a silence. A consumer that is too slow for the
// server's client-output-buffer-limit also loses its connection.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	s, err := script.Do(ctx, d.b.run, func() (*lines.Subscription, error) {
		client, err := d.b.run.Master(ctx)
		if err != nil {
			return nil, err
		}
		return d.b.opts.Feeds.lines.Subscribe(ctx, client, d.b.opts.Channel, d.b.opts.FeedSilence)
	})
	if err != nil {
		return err
	}
	defer s.Close()

	first, err := d.read(ctx) // after the subscription: nothing falls between
	if err != nil {
		return err
	}
	return store.News(first, func() (*leaderelection.RaceEntry, error) {
		text, err := s.Next(ctx)
		if err != nil {
			return nil, err
		}
		return d.pushed(ctx, text)
	}, yield)
}

// pushed is the record in a message, or the one that is there now.
func (d *Decider) pushed(ctx context.Context, text string) (*leaderelection.RaceEntry, error) {
	v, rec, _ := strings.Cut(text, "\n")
	e, err := d.election.Entry(store.Stored[version]{Data: []byte(rec), At: version(v)})
	if err != nil || v == "" || d.b.doubtful(e) {
		// Somebody else's message, which tells nothing; or a write of one's
		// own that waits for the replicas, as reading does.
		return d.read(ctx)
	}
	return e, nil
}
