package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/record"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Options adjusts a Decider. The zero value is right for a single server.
type Options struct {
	// Channel is where writes are published. All who take part must use the
	// same. Channels are the server's, not a database's: two elections with
	// one key in two databases want two. Empty: "leaderelection:" and the key.
	Channel string
	// WaitReplicas is how many replicas must have a write before it counts
	// (WAIT). One that fewer have is an error, and its record is not taken for
	// this candidate's own until that many have it. Choose one less than there
	// are replicas, so that one may be away; and set min-replicas-to-write in the
	// server. Zero: none; the master's word counts.
	WaitReplicas int
	// WaitTimeout is how long to wait for them, at most. It must be shorter
	// than the client's ReadTimeout (3 s by default). Zero: 500 ms.
	WaitTimeout time.Duration
	// FeedSilence is how long the feed bears to hear nothing before it asks
	// the server whether it is there. A leader is heard of each half term, so
	// more than that asks only where nobody leads. Zero: 30 s.
	FeedSilence time.Duration
	// Feeds is what elections share connections by, for a process that follows
	// many: see its documentation. The FeedSilence of whoever makes the
	// connection holds for all that share it. Nil: a connection for each Decider.
	Feeds *Feeds
}

// What zero values of Options mean.
const (
	DefaultWaitTimeout = 500 * time.Millisecond
	DefaultFeedSilence = 30 * time.Second
)

// maxCalls is how many calls of one handle may be under way, those included that
// were given up: a call of go-redis cannot be interrupted, and ends by the
// client's own timeouts.
const maxCalls = 16

// Decider is one handle on an election in Redis. It is a
// leaderelection.RaceDecider and a leaderelection.ChangeFeed; all its methods may
// be called by several goroutines at once.
type Decider struct {
	client redis.UniversalClient
	close  func() error // where the client is the Decider's own
	key    string
	opts   Options
	calls  within.Calls

	// Requests, and the versions that they write, have a mark that no other
	// handle's have, and a number.
	mark      string
	asked     atomic.Uint64
	confirmed atomic.Pointer[version] // the last of one's own that the replicas have
	reigns    sync.Map                // the Incarnations for which this handle has claimed the record
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
)

// NewDecider returns a handle on the election kept at key. The client stays the
// caller's: it must be kept open while the Decider is in use, and may serve
// others. Let it not retry (MaxRetries: -1), since candidates do, and know how.
// Options may be nil. It does no I/O, and there is nothing to create beforehand.
func NewDecider(client redis.UniversalClient, key string, opts *Options) *Decider {
	d := &Decider{client: client, key: key, calls: make(within.Calls, maxCalls), mark: rand.Text()[:16]}
	if opts != nil {
		d.opts = *opts
	}
	if d.opts.Channel == "" {
		d.opts.Channel = "leaderelection:" + key
	}
	if d.opts.Feeds == nil {
		d.opts.Feeds = new(Feeds)
	}
	if d.opts.WaitTimeout <= 0 {
		d.opts.WaitTimeout = DefaultWaitTimeout
	}
	if d.opts.FeedSilence <= 0 {
		d.opts.FeedSilence = DefaultFeedSilence
	}
	return d
}

// Close closes the client that Open has made. The client given to NewDecider is
// the caller's to close.
func (d *Decider) Close() error {
	if d.close == nil {
		return nil
	}
	return d.close()
}

// version is a LeaderToken: the version field, such as
// "1763728000123456-K7QF3J2M5N6P7Q2R-17"; empty where there is no key.
type version string

// CommitTS is the time that begins it, by the server's clock.
func (v version) CommitTS() time.Time {
	at, _, _ := strings.Cut(string(v), "-")
	us, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// own says whether this handle wrote the version.
func (d *Decider) own(v version) bool { return strings.Contains(string(v), "-"+d.mark+"-") }

// String names the place of the record: the key.
func (d *Decider) String() string { return d.place() }

// ReadCurrent implements leaderelection.RaceDecider. It asks the master, and is
// never staler than that.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	e, err := d.read(ctx)
	if err != nil {
		return nil, d.failed(ctx, "reading", err)
	}
	return e, nil
}

func (d *Decider) read(ctx context.Context) (*leaderelection.RaceEntry, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	for {
		a, err := d.eval(ctx, readScript, 0)
		if err != nil {
			return nil, err
		}
		e, err := d.entry(a)
		if err != nil {
			return nil, err
		}
		switch err := d.confirm(ctx, a.version, e); {
		case err == nil:
			return e, nil
		case !errors.Is(err, errReplaced):
			return nil, err
		}
	}
}

// WriteEntry implements leaderelection.RaceDecider. A refusal is a
// leaderelection.LostRaceError with the current record.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	v, err := d.write(ctx, entry)
	if err != nil {
		return nil, d.failed(ctx, "writing", err)
	}
	return v, nil
}

func (d *Decider) write(ctx context.Context, entry *leaderelection.RaceEntry) (version, error) {
	if err := errors.Join(ctx.Err(), d.check()); err != nil {
		return "", err
	}
	data, err := record.Marshal(entry)
	if err != nil {
		return "", err
	}
	was := version("")
	if entry.Token != nil {
		v, ours := entry.Token.(version)
		if !ours {
			return "", permanent("the Token is a %T, of another kind of store", entry.Token)
		}
		was = v
	}
	if entry.Extension == 0 && !entry.Vacant() && d.opts.WaitReplicas > 0 {
		d.reigns.Store(entry.Incarnation, true)
	}
	a, err := d.eval(ctx, writeScript, d.opts.WaitReplicas, string(was), data, d.opts.Channel)
	switch {
	case err != nil:
		return "", err
	case a.status == refused:
		return "", d.lost(a)
	case a.status == foreign:
		return "", errForeign
	}
	if err := d.enough(a); err != nil {
		return "", err
	}
	d.confirmed.Store(&a.version)
	return a.version, nil
}

// lost is the refusal of a write, with the record that stood in its way. One's own
// that the replicas may not have is left out: it would pass for confirmed.
func (d *Decider) lost(a answer) error {
	lost := &leaderelection.LostRaceError{Place: d.place()}
	if a.version == "" && a.record == "" {
		a.status = absent // deleted since it was read
	}
	if e, err := d.entry(a); err == nil && !d.doubtful(a.version, e) {
		lost.Current = e // one that cannot be read is ReadCurrent's to report
	}
	return lost
}

// doubtful says whether a version could be taken for the confirmation of a write of
// this handle's, and is not known to be on as many replicas as it must: one that it
// wrote itself, and one that somebody else (Transfer, StepDown) wrote over it, which
// keeps its term's end.
func (d *Decider) doubtful(v version, e *leaderelection.RaceEntry) bool {
	if d.opts.WaitReplicas <= 0 {
		return false
	}
	if c := d.confirmed.Load(); c != nil && *c == v {
		return false
	}
	_, claimed := d.reigns.Load(e.Incarnation)
	return claimed || d.own(v)
}

// confirm returns nil when the version v, which was read, may count. A campaign
// that reads a record of its own takes it for a write that worked; where the
// replicas' answer to that write was lost, they are asked here.
func (d *Decider) confirm(ctx context.Context, v version, e *leaderelection.RaceEntry) error {
	if !d.doubtful(v, e) {
		return nil
	}
	a, err := d.eval(ctx, touchScript, d.opts.WaitReplicas, string(v))
	if err != nil {
		return err
	}
	if a.status != done {
		return errReplaced
	}
	if err := d.enough(a); err != nil {
		return err
	}
	d.confirmed.Store(&v)
	return nil
}

var errReplaced = errors.New("the record was replaced while replicas were asked whether they have it")

// enough says whether as many replicas have a write as must.
func (d *Decider) enough(a answer) error {
	if a.replicas < int64(d.opts.WaitReplicas) {
		return fmt.Errorf("it is written, but only %d of %d replicas have it after %v (WAIT), so it does not count: see to the replicas, or lower Options.WaitReplicas",
			a.replicas, d.opts.WaitReplicas, d.opts.WaitTimeout)
	}
	return nil
}

// entry is the record in an answer.
func (d *Decider) entry(a answer) (*leaderelection.RaceEntry, error) {
	switch {
	case a.status == foreign:
		return nil, errForeign
	case a.status == absent:
		return &leaderelection.RaceEntry{Token: version("")}, nil
	case a.version == "":
		return nil, errForeign
	}
	e, err := record.Unmarshal(d.place(), []byte(a.record))
	if err != nil {
		return nil, err
	}
	e.Token = a.version
	return e, nil
}

func (d *Decider) check() error {
	if d.key == "" {
		return permanent("the key is empty; give the election a name")
	}
	return nil
}

// place is where the record is, for errors.
func (d *Decider) place() string { return fmt.Sprintf("redis key %q", d.key) }
