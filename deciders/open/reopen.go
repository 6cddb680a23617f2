package open

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/internal/clients"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
)

// Heir is a decider that must know of the writes that an earlier decider of the same record made.
// When Stores.Open's decider replaces its client, it calls Inherit on the new decider before anything
// else. From has the same type if the same Opener made both. From may still be in use.
//
// A decider needs this if its ReadCurrent is stricter with a record that it may have written itself:
// for example if it asks a store's replicas whether they have a write that had no response. Without
// Inherit the new decider would take the record as it is.
type Heir interface {
	Inherit(from leaderelection.RaceDecider)
}

// Limits of the time in which all calls must fail before there is a new client.
const (
	usualTerm = 15 * time.Second // while no record has named a term
	leastTerm = time.Second
	mostTerm  = time.Minute // a leader with a longer term is to keep it
)

// openingLimit is for how long a new client may take to be made.
const openingLimit = 30 * time.Second

// tellAgain is the least time between two warnings: an outage may last.
const tellAgain = time.Minute

// errReplaced ends a feed of a client that has been replaced.
var errReplaced = errors.New("leaderelection/open: the store's client has been replaced since its calls kept failing; the feed begins again with the new client")

type loggerKey struct{}

// WithLogger returns a ctx for Stores.Open. The decider that it opens logs to logger when it replaces
// its client. Without it, or with a nil logger, it logs to slog.Default().
func WithLogger(ctx context.Context, logger *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, logger)
}

// made is a decider that an Opener has made, with its client.
type made struct {
	leaderelection.RaceDecider
	shares *clients.Shares
	life   context.Context // of its feeds: ends when another takes over
	end    context.CancelFunc
	users  int // calls and feeds under way
}

// call is a kind of call: that one works does not show that the other does.
type call int

const (
	read call = iota
	write
)

// reopening is a decider that replaces its client: see Stores.Open.
type reopening struct {
	url  string // redacted
	open func(context.Context, *clients.Shares) (leaderelection.RaceDecider, error)
	ctx  context.Context // of openings
	stop context.CancelFunc
	log  *slog.Logger

	mu      sync.Mutex
	now     *made
	since   [2]time.Time // by call: since when each has failed; zero: it has not
	last    [2]time.Time // by call: its last failure
	term    time.Duration
	asked   time.Time // when a new client was last asked for
	opening bool
	closed  bool
	told    time.Time      // when a new client was last logged
	behind  sync.WaitGroup // openings, and closings of what was replaced
}

// reopens makes d, which open has made, one that replaces its client. If d has none, it is returned
// as it is.
func reopens(ctx context.Context, url string, d leaderelection.RaceDecider, shares *clients.Shares, open func(context.Context, *clients.Shares) (leaderelection.RaceDecider, error)) leaderelection.RaceDecider {
	if _, holds := d.(io.Closer); !holds {
		return d
	}
	logger, _ := ctx.Value(loggerKey{}).(*slog.Logger)
	o := &reopening{url: url, open: open, now: newMade(d, shares), term: usualTerm, log: warnings.Or(logger)}
	o.ctx, o.stop = context.WithCancel(context.WithoutCancel(ctx))
	_, feeds := d.(leaderelection.ChangeFeed)
	_, examines := d.(durability.Examiner)
	switch {
	case feeds && examines:
		return struct {
			*reopening
			following
			examining
		}{o, following{o}, examining{o}}
	case feeds:
		return struct {
			*reopening
			following
		}{o, following{o}}
	case examines:
		return struct {
			*reopening
			examining
		}{o, examining{o}}
	}
	return o
}

func newMade(d leaderelection.RaceDecider, shares *clients.Shares) *made {
	m := &made{RaceDecider: d, shares: shares}
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

// use returns the decider of the present client, for one call or feed.
func (o *reopening) use() *made {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now.users++
	return o.now
}

// done ends a use. A client that was replaced is closed after its last call.
func (o *reopening) done(m *made) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m.users--
	o.closeUnused(m)
}

func (o *reopening) closeUnused(m *made) {
	if m.users > 0 || m == o.now {
		return
	}
	o.behind.Add(1)
	go func() {
		defer o.behind.Done()
		_ = Close(m.RaceDecider)
	}()
}

// noted takes note of how a call has ended.
func (o *reopening) noted(m *made, kind call, err error, entries ...*leaderelection.RaceEntry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m != o.now {
		return
	}
	for _, e := range entries {
		if e != nil && e.TermLength > 0 {
			o.term = min(max(e.TermLength, leastTerm), mostTerm)
		}
	}
	now := time.Now()
	if answered(err) {
		o.since[kind] = time.Time{}
		return
	}
	// A standby may write today, and next month: two failures do not make a month of them.
	if o.since[kind].IsZero() || now.Sub(o.last[kind]) > 2*o.term {
		o.since[kind] = now
	}
	o.last[kind] = now
	failed := now.Sub(o.since[kind])
	if o.opening || o.closed || failed < o.term || now.Sub(o.asked) < o.term {
		return
	}
	o.opening, o.asked = true, now
	o.behind.Add(1)
	go o.replace(m, failed, err)
}

// answered reports whether err shows that the client works: the store has decided a race, has asked
// for a pause, or has said that no retry can help. Refused credentials do not: those of a new client
// may be accepted.
func answered(err error) bool {
	var pause *leaderelection.RetryAfterError
	return err == nil || errors.Is(err, leaderelection.ErrLostRace) || errors.As(err, &pause) ||
		errors.Is(err, leaderelection.ErrPermanent) && !errors.Is(err, leaderelection.ErrDenied)
}

// replace makes a new client, and has it take over from old.
func (o *reopening) replace(old *made, failed time.Duration, why error) {
	defer o.behind.Done()
	old.shares.Retire()
	ctx, cancel := context.WithTimeoutCause(o.ctx, openingLimit, fmt.Errorf("no new client within %v: %w", openingLimit, context.DeadlineExceeded))
	defer cancel()
	shares := new(clients.Shares)
	d, err := o.open(ctx, shares)
	if heir, is := d.(Heir); is {
		heir.Inherit(old.RaceDecider)
	}
	o.mu.Lock()
	o.opening = false
	switch {
	case err == nil && o.closed:
		defer func() { _ = Close(d) }()
	case err == nil:
		o.now, o.since = newMade(d, shares), [2]time.Time{}
		old.end()
		o.closeUnused(old)
	}
	closed, level := o.closed, slog.LevelWarn
	if time.Since(o.told) < tellAgain {
		level = slog.LevelDebug
	} else {
		o.told = time.Now()
	}
	o.mu.Unlock()
	switch {
	case closed:
	case err != nil:
		o.log.Log(o.ctx, level, "leaderelection/open: the store's calls keep failing, and no new client could be made", "place", o.String(), "for", failed, "err", why, "opening", err)
	default:
		o.log.Log(o.ctx, level, "leaderelection/open: the store's calls kept failing, so a new client has taken over", "place", o.String(), "for", failed, "err", why)
	}
}

// ReadCurrent implements leaderelection.RaceDecider.
func (o *reopening) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	m := o.use()
	defer o.done(m)
	e, err := m.ReadCurrent(ctx)
	o.noted(m, read, err, e)
	return e, err
}

// WriteEntry implements leaderelection.RaceDecider.
func (o *reopening) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	m := o.use()
	defer o.done(m)
	t, err := m.WriteEntry(ctx, entry)
	o.noted(m, write, err, entry)
	return t, err
}

// String names the place, as the store's own decider does.
func (o *reopening) String() string {
	o.mu.Lock()
	m := o.now
	o.mu.Unlock()
	if s, says := m.RaceDecider.(fmt.Stringer); says {
		return s.String()
	}
	return o.url
}

// Close closes the client. It waits until those that were replaced are closed, too.
func (o *reopening) Close() error {
	o.mu.Lock()
	o.closed = true
	m := o.now
	o.mu.Unlock()
	o.stop()
	o.behind.Wait()
	return Close(m.RaceDecider)
}

// following is the feed of a reopening.
type following struct{ of *reopening }

// Changes implements leaderelection.ChangeFeed. A feed ends with an error if the client is replaced.
func (f following) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		m := f.of.use()
		defer f.of.done(m)
		feed, follows := m.RaceDecider.(leaderelection.ChangeFeed)
		if !follows {
			yield(nil, fmt.Errorf("leaderelection/open: the new client of %s has no feed", f.of.url))
			return
		}
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(m.life, cancel)()
		for e, err := range feed.Changes(inner) {
			if !yield(e, err) || err != nil {
				return
			}
		}
		if m.life.Err() != nil && ctx.Err() == nil {
			yield(nil, errReplaced)
		}
	}
}

// examining is the durability.Examiner of a reopening.
type examining struct{ of *reopening }

// Durability implements durability.Examiner.
func (x examining) Durability(ctx context.Context) ([]durability.Warning, error) {
	m := x.of.use()
	defer x.of.done(m)
	return m.RaceDecider.(durability.Examiner).Durability(ctx)
}
