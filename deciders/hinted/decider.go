// Package hinted adds push to a store that cannot push. After a hint that something may have
// changed, it reads the record once. So candidates learn of a release in the time that the hint and
// a read take, instead of at their next poll.
//
//	decider := hinted.NewDecider(gcs.NewDecider(client, bucket, "elections/web", nil),
//		func(ctx context.Context, changed func()) error {
//			return subscription.Receive(ctx, func(_ context.Context, m *pubsub.Message) {
//				m.Ack()
//				changed()
//			})
//		}, nil)
//
// # Where hints come from
//
// Anything that says "look again" can be a hint. Its content does not matter, and nobody reads it.
//
//   - The store's own notifications: of a bucket on Google Cloud by Pub/Sub, of one on Amazon S3 by
//     SNS or SQS, of Azure Blob Storage by Event Grid.
//   - The candidates: each announces what it has written (Options.Announce) on a NATS subject, a
//     Redis channel, or by UDP.
//
// A Hints listens for one feed. If several feeds of one process share a source whose messages go to
// one listener each (a channel, an SQS queue, a webhook), a Signal passes them on to all. Each
// process needs a subscription of its own: a shared one delivers each hint to only one process.
//
// # What a hint may do
//
// A hint may get lost, come late, twice, or by the thousand. It only causes a read, and the record
// decides.
//
//   - Lost or late: the feed also reads if it has not read for a PollInterval. News is late by that
//     much at most.
//   - Early, if reads lag behind writes, as on a replica: if the read after a hint shows nothing
//     new, the feed reads once more, a MinInterval later.
//   - Repeated: any number of hints that come while a read is due or under way cause one more read.
//   - A storm of them: a feed answers four at once, and after that reads once in a MinInterval.
//   - No more hints, since the source has failed or ended: the feed fails, too, so that the failure
//     is logged and traced, and candidates open another feed. That feed polls, and tries the source
//     again after a pause of 1 s to 1 min.
//
// # What the feed tells
//
// It yields only what the wrapped decider's ReadCurrent returns: no state that the store has not
// committed, or that is undone. Reads, writes and their errors pass through unchanged. A write that
// is given up may still happen, and may still be announced.
//
// # Two intervals for polls
//
// The feed's own poll, Options.PollInterval, is the safety net for a lost hint. The PollInterval of
// Config and WatchConfig applies while the feed is down, and while no term runs. The default of both is
// half a term, so a lost hint makes news as late as it would be without hints.
//
// # What it costs
//
// Each write is announced to each candidate and observer, the leader included. Each reads once for
// it: about 515 times an hour at the defaults (T = 15 s, S = 1 s). Standbys that poll read 480
// times. A read after a hint postpones the poll, so while hints arrive there are almost no polls.
// The messages come on top. Hints save time, not requests.
//
// If reads cost too much, let only some messages through, such as those that tell of a release, and
// leave the rest to the poll.
package hinted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// Hints listens for hints until ctx ends, and calls changed for each. It returns soon after ctx has
// ended. It returns before only if it has failed, with the reason. It is run for each feed, and
// again after a pause if it has failed. So it must subscribe when it is called, and unsubscribe
// before it returns.
//
// Changed never blocks. Several goroutines may call it at once, even after Hints has returned. If
// subscribing takes time, call it once more when the subscription is ready, to find what was written in
// the meantime.
type Hints func(ctx context.Context, changed func()) error

// Options adjusts a Decider. The zero value is right for most.
type Options struct {
	// PollInterval is how long the feed goes without a read before it reads without a hint: how
	// late news is if its hint was lost. Make it longer if hints are reliable and reads cost.
	// It should be a term at most: otherwise standbys learn of a lost release later than the
	// term would have ended. Zero: half of the term that the record names (of 15 s while there
	// is none).
	PollInterval time.Duration

	// MinInterval is the time from one read to the next in a storm of hints, and so the
	// greatest delay of news in a storm. After a quiet time a few hints are answered at once.
	// Zero: 1 s.
	MinInterval time.Duration

	// Announce, if not nil, tells others of a write: it publishes what their Hints receive. It
	// is called after each write that may have happened, one call at a time, and its ctx ends
	// after a second. WriteEntry waits for it, so that a leader that stops announces its
	// release before the process ends. It waits for a tenth of a second at most, so Announce
	// should only pass the message to its client. If Announce fails, the poll finds the news.
	Announce func(ctx context.Context)
}

// Decider is a RaceDecider with a feed made of hints and reads. Its methods may be called by
// several goroutines at once.
type Decider struct {
	decider leaderelection.RaceDecider
	source  source
	opts    Options
	tell    loop.Calls  // of Announce
	telling atomic.Bool // one is under way
	wrong   error       // with the options
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
)

// NewDecider returns decider with a feed that reads after each hint. Reads and writes are decider's
// own. If decider is a ChangeFeed itself, its feed is not used: a store that pushes needs no hints.
// Opts may be nil. NewDecider does no I/O. Each call of Changes runs hints.
func NewDecider(decider leaderelection.RaceDecider, hints Hints, opts *Options) *Decider {
	var o Options
	if opts != nil {
		o = *opts
	}
	wrong := cmp.Or(durations.Fault("PollInterval", o.PollInterval, durations.Least), durations.Fault("MinInterval", o.MinInterval, durations.Least))
	o.MinInterval = cmp.Or(o.MinInterval, time.Second)
	return &Decider{decider: decider, source: source{hints: hints}, opts: o, tell: loop.Calls{Limit: 1}, wrong: wrong}
}

// ReadCurrent implements leaderelection.RaceDecider.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	return d.decider.ReadCurrent(ctx)
}

// WriteEntry implements leaderelection.RaceDecider.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	token, err := d.decider.WriteEntry(ctx, entry)
	if err == nil || !errors.Is(err, leaderelection.ErrLostRace) && !errors.Is(err, leaderelection.ErrPermanent) {
		d.announce()
	}
	return token, err
}

// check finds what NewDecider was not given.
func (d *Decider) check() error {
	switch {
	case d.decider == nil:
		return fmt.Errorf("leaderelection/hinted: the decider given to NewDecider is nil: %w", leaderelection.ErrPermanent)
	case d.source.hints == nil:
		return fmt.Errorf("leaderelection/hinted: the hints given to NewDecider are nil: leave out the package if there are none: %w", leaderelection.ErrPermanent)
	case d.wrong != nil:
		return fmt.Errorf("leaderelection/hinted: %w: %w", d.wrong, leaderelection.ErrPermanent)
	}
	return nil
}

// Close closes the wrapped decider, if it can be closed.
func (d *Decider) Close() error {
	if c, ok := d.decider.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// String names the place of the record, as the wrapped decider does.
func (d *Decider) String() string {
	if s, ok := d.decider.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("a %T", d.decider)
}
