// Package hinted adds push to a store that cannot push: after a hint that something may
// have changed, the record is read, once. Candidates then learn of a release in the time
// that the hint and a read take, instead of at their next poll.
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
// From whatever can be had and says "look again": the store's own notifications (of a
// bucket on Google Cloud by Pub/Sub, of one on Amazon S3 by SNS or SQS, of Azure Blob
// Storage by Event Grid), or the candidates themselves, each of which announces what it
// has written (Options.Announce) on a NATS subject, a Redis channel, by UDP. What a hint
// says does not matter, and it is not looked at.
//
// A Hints listens for one feed. If several feeds of one process share a source whose
// messages go to one listener each (a channel, an SQS queue, a webhook), let a Signal
// hand them on to all. Each process needs a subscription of its own: one that is shared
// by all of them tells each hint to one of them only.
//
// # What a hint may do
//
// All that a message may: get lost, come late, twice, or by the thousand. It is never
// believed, only answered by a read, and the record decides.
//
//   - Lost or late: the feed also reads if nothing was read for a PollInterval. News
//     is late by that much at most.
//   - Early, where a read lags behind writes, as a replica's may: a hint whose read shows
//     nothing new is answered by one more, a MinInterval later.
//   - Repeated: hints that come while a read is due or under way cause one more read,
//     however many they are.
//   - A storm of them: a feed answers four at once, and after that reads once in a
//     MinInterval.
//   - No more hints, since the source has failed or ended: the feed fails with it, so
//     that the failure is logged and traced, and candidates open another. That one
//     polls, and tries the source again after a pause of 1 s to 1 min.
//
// # What the feed tells
//
// What the wrapped decider's ReadCurrent returns, and nothing else: it tells of nothing
// that the store has not committed, and not of a state that is undone. Reads and writes are
// handed on as they are, and so are their errors; a call that is given up is given up in
// the store as it would be without this package, and may be announced all the same.
//
// # Two intervals for polls
//
// A campaign whose feed is healthy does not poll while a term is running, so the feed's
// own poll, Options.PollInterval, is the safety net for a lost hint. The PollInterval of
// Config and WatchConfig applies while the feed is down, and while no term is running.
// Both are half a term if they are zero, so that by default a lost hint makes news as
// late as it would be without hints.
//
// # What it costs
//
// Each write is announced to each candidate and observer, the leader included, and each
// reads once for it: about 515 times an hour at the defaults (T = 15 s, S = 1 s), where
// polling standbys read 480 times. A read that answers a hint puts off the poll, so
// while hints arrive there are next to no polls. Beside that there are the messages. It
// buys time, not requests.
//
// If reads cost too much, let only some messages through, such as those that tell
// of a release, and the poll do the rest.
package hinted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/durations"
)

// Hints listens for hints until ctx ends, and calls changed for each. It returns soon
// after ctx has ended; before that only if it has failed, with why. It is run again for
// each feed, and again, after a pause, if it has failed; so it subscribes when it is
// called, and takes the subscription down before it returns.
//
// Changed never blocks, and may be called by several goroutines at once, also after Hints
// has returned. A Hints that needs time to subscribe calls it when it listens, too: what
// was written between is then found at once.
type Hints func(ctx context.Context, changed func()) error

// Options adjusts a Decider. The zero value is right for most.
type Options struct {
	// PollInterval is after how long without a read the feed reads without a
	// hint: how late news is if its hint was lost. Make it longer if hints
	// are reliable and reads cost; a term at most, or standbys come to know of
	// a lost release only when the term would have ended. Zero: half of the
	// term that the record names (of 15 s while there is none).
	PollInterval time.Duration

	// MinInterval is the time from one read to the next in a storm of hints. It
	// is as late as news can be in one. A few that come after a quiet time are
	// answered at once. Zero: 1 s.
	MinInterval time.Duration

	// Announce, where not nil, tells others of a write: it publishes what their
	// Hints receive. It is called after each write that may have happened, for one
	// at a time, and its ctx ends after a second. WriteEntry waits for it, so
	// that a leader that stops announces its release before the process ends,
	// but no longer than a tenth of a second: better it only hands the message
	// to its client. If it fails there is no announcement, which the poll
	// makes good.
	Announce func(ctx context.Context)
}

// Decider is a RaceDecider with a feed made of hints and reads. All its methods may be
// called by several goroutines at once.
type Decider struct {
	decider leaderelection.RaceDecider
	source  source
	opts    Options
	tell    announcer
	wrong   error // with the options
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
)

// NewDecider returns decider with a feed that reads after each hint. Reads and writes are
// decider's own. If decider is a ChangeFeed itself, its feed is not used: a store that
// pushes needs no hints. Opts may be nil. It does no I/O; each call of Changes runs hints.
func NewDecider(decider leaderelection.RaceDecider, hints Hints, opts *Options) *Decider {
	var o Options
	if opts != nil {
		o = *opts
	}
	wrong := cmp.Or(durations.Fault("PollInterval", o.PollInterval, durations.Least), durations.Fault("MinInterval", o.MinInterval, durations.Least))
	o.MinInterval = cmp.Or(o.MinInterval, time.Second)
	return &Decider{decider: decider, source: source{hints: hints}, opts: o, tell: announcer{announce: o.Announce}, wrong: wrong}
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
		d.tell.written()
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

// Close closes the decider to which hints are added, if it can be closed.
func (d *Decider) Close() error {
	if c, ok := d.decider.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// String names the place of the record, as the Decider does to which hints are added.
func (d *Decider) String() string {
	if s, ok := d.decider.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("a %T", d.decider)
}
