package natskv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// maxCalls is how many calls of one Decider may be under way, those included that
// were given up: the client's lock is held while a full connection is written to,
// and nothing can interrupt who waits for it.
const maxCalls = 16

// Decider is an election kept under one key of a key-value bucket. It is a
// leaderelection.RaceDecider and a leaderelection.ChangeFeed. Its methods may be called by several
// goroutines at once.
type Decider struct {
	k        *backend
	election store.Election[token]
	close    func() error // of the connection that Open made; else nil
}

// backend is the store: one key of a bucket.
type backend struct {
	js     jetstream.JetStream
	bucket string
	key    string
	create *jetstream.KeyValueConfig

	calls   within.Calls
	bound   atomic.Pointer[binding]   // the bucket, once it has been looked up
	probing atomic.Bool               // whether the server is there
	stamped atomic.Pointer[time.Time] // when a stamp was last fetched
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
)

// Options adjusts a Decider. The zero value, and a nil *Options, are right for a bucket that
// exists.
type Options struct {
	// Create makes the bucket, with this configuration, if it is missing. Leave its Bucket
	// empty. A bucket that exists stays as it is. Use file storage (the default), and Replicas:
	// 3 if the cluster has three servers or more. A TTL, a Mirror or Sources are refused: see
	// the package comment.
	Create *jetstream.KeyValueConfig
}

// NewDecider returns a decider of the election under key in bucket. It does no I/O: the first call
// that needs the bucket looks it up. If either name is wrong, every call returns an ErrPermanent.
//
// Make the connection with [ConnectOptions], so that it never gives up: otherwise it closes at some
// time, and can elect nobody. Close it yourself, after the campaign. One connection, and one
// Decider, are enough for any number of campaigns and observers.
func NewDecider(js jetstream.JetStream, bucket, key string, opts *Options) *Decider {
	k := &backend{js: js, bucket: bucket, key: key, calls: make(within.Calls, maxCalls)}
	if opts != nil && opts.Create != nil {
		c := *opts.Create
		c.Bucket = bucket
		k.create = &c
	}
	return &Decider{k: k, election: store.Election[token]{Store: k, Package: "natskv", Place: k.place() + k.at()}}
}

// Close closes the connection that Open made. Call it after the campaign has ended: calls under way
// fail. On a Decider of NewDecider it does nothing.
func (d *Decider) Close() error {
	if d.close != nil {
		return d.close()
	}
	return nil
}

// token is a version of the key: its revision, which is the sequence number that
// its last message has in the bucket's stream. 0: the key has never had one, or
// it was purged without trace.
type token struct {
	place   string // empty: whatever it was, there must be no record
	rev     uint64
	created time.Time
}

// CommitTS is when the server stored this version, by its own clock. A write is acknowledged without a time, so
// WriteEntry asks for it: after each acquisition, and after one extension a term. It is zero for the others.
func (t token) CommitTS() time.Time { return t.created }

// String names the place of the record: bucket and key, the servers, and the JetStream domain.
func (d *Decider) String() string { return d.election.Place }

// ReadCurrent implements leaderelection.RaceDecider. A deleted or purged key is an empty election
// that was emptied (RaceEntry.Emptied), as its marker shows. On a bucket that allows direct reads,
// as those of the usual tools do, any replica may answer, even a stale one.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider. The server compares the key's revision and
// stores the record in one step, on a replicated bucket as one entry of its Raft log.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Load implements store.Store.
func (k *backend) Load(ctx context.Context) (s store.Stored[token], err error) {
	m, err := do(ctx, k, k.last)
	switch {
	case err != nil:
		return s, err
	case m == nil:
		return k.nothing(), nil
	}
	return k.stored(m.Sequence, m.Time, m.Header, m.Data), nil
}

// last is the key's last message, or nil if it has none.
func (k *backend) last(ctx context.Context, b *binding) (*jetstream.RawStreamMsg, error) {
	m, err := b.stream.GetLastMsgForSubject(ctx, k.subject())
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case m.Subject != k.subject():
		return nil, fmt.Errorf("the response is about subject %q, not about %q", m.Subject, k.subject())
	}
	return m, nil
}

// Swap implements store.Store.
func (k *backend) Swap(ctx context.Context, at token, data []byte, entry *leaderelection.RaceEntry) (token, error) {
	if at.place != "" && at.place != k.place() {
		return token{}, store.Wrong("the entry's Token was not read here, but at %s", at.place)
	}
	rev, err := do(ctx, k, func(ctx context.Context, b *binding) (uint64, error) {
		rev, err := k.replace(ctx, b, data, at.rev)
		if at.place == "" && lost(err) {
			// There must be no record: none at all, or a deleted one.
			if m, readErr := k.last(ctx, b); readErr == nil && m != nil && marker(m.Header) {
				return k.replace(ctx, b, data, m.Sequence)
			}
		}
		return rev, err
	})
	if err != nil {
		return token{}, err
	}
	return token{place: k.place(), rev: rev, created: k.stamp(ctx, rev, entry)}, nil
}

// stamp returns when the server stored the record entry, or the zero time if that is not needed or not to be had
// soon: the write has happened all the same. A campaign compares its clock with the time of each acquisition
// before it leads, and that of an extension once a term.
func (k *backend) stamp(ctx context.Context, rev uint64, entry *leaderelection.RaceEntry) time.Time {
	now := time.Now()
	if last := k.stamped.Load(); entry.Vacant() || entry.Extension > 0 && last != nil && now.Sub(*last) < entry.TermLength {
		return time.Time{}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m, err := do(ctx, k, k.last)
	if err != nil || m == nil || m.Sequence != rev {
		return time.Time{}
	}
	k.stamped.Store(&now)
	return m.Time.UTC()
}

// replace is put, and asks again if a replicated bucket is busy: for a moment
// after it has acknowledged a write it may refuse the next as it refuses a stale one.
func (k *backend) replace(ctx context.Context, b *binding, data []byte, rev uint64) (uint64, error) {
	for attempt := 1; ; attempt++ {
		next, err := k.put(ctx, data, rev)
		if !refusedBy(err, jetstream.JSErrCodeStreamWrongLastSequenceConstant) || attempt == 4 {
			return next, err
		}
		now := uint64(0)
		m, readErr := k.last(ctx, b)
		if m != nil {
			now = m.Sequence
		}
		if readErr != nil || now != rev {
			return next, err
		}
		select {
		case <-time.After(time.Duration(attempt) * 5 * time.Millisecond):
		case <-ctx.Done():
			return next, err
		}
	}
}

// put stores data where the key's revision is rev, and returns the new one. Anybody
// who may publish to the client's inbox can answer for the server: an answer counts
// only if it is what the bucket's stream answers to this write.
func (k *backend) put(ctx context.Context, data []byte, rev uint64) (uint64, error) {
	subject := k.subject()
	switch o := k.js.Options(); {
	case o.Domain != "":
		subject = "$JS." + o.Domain + ".API." + subject
	case o.APIPrefix != "":
		subject = strings.TrimSuffix(o.APIPrefix, ".") + "." + subject
	}
	ack, err := k.js.Publish(ctx, subject, data, jetstream.WithExpectStream(k.streamName()), jetstream.WithExpectLastSequencePerSubject(rev))
	switch {
	case err != nil:
		return 0, err
	case ack.Stream != k.streamName() || ack.Sequence <= rev || ack.Duplicate:
		return 0, fmt.Errorf("stream %q answers with sequence %d (duplicate: %v) to a write to stream %q that replaces sequence %d: that is not a response to this write",
			ack.Stream, ack.Sequence, ack.Duplicate, k.streamName(), rev)
	}
	return ack.Sequence, nil
}

// stored is what a message of the key's says. If the key was deleted, its version
// is that of the marker that took its place, and the next create is conditional on it.
func (k *backend) stored(rev uint64, created time.Time, header nats.Header, data []byte) store.Stored[token] {
	gone := marker(header)
	return store.Stored[token]{Data: data, At: token{place: k.place(), rev: rev, created: created.UTC()}, None: gone, Emptied: gone}
}

// nothing is what is stored of a key that has no message.
func (k *backend) nothing() store.Stored[token] {
	return store.Stored[token]{At: token{place: k.place()}, None: true}
}

// marker reports whether a message stands for the absence of a value: the key was
// deleted or purged by a client, or removed by the server, which gives a reason.
func marker(h nats.Header) bool {
	switch h.Get("KV-Operation") {
	case "DEL", "PURGE":
		return true
	}
	return h.Get(jetstream.MarkerReasonHeader) != ""
}

// subject is where the bucket's stream keeps the key.
func (k *backend) subject() string { return "$KV." + k.bucket + "." + k.key }

// streamName is the name of the bucket's stream.
func (k *backend) streamName() string { return "KV_" + k.bucket }

// place names the record in errors.
func (k *backend) place() string {
	return fmt.Sprintf("NATS bucket %q, key %q", k.bucket, k.key)
}

// at names what the connection was told of the servers, and the JetStream domain: a bucket of the
// same name elsewhere is another.
func (k *backend) at() (where string) {
	if nc := k.js.Conn(); nc != nil {
		where = store.At(cmp.Or(strings.Join(nc.Opts.Servers, ","), nc.Opts.Url))
	}
	if o := k.js.Options(); o.Domain != "" {
		where += ", JetStream domain " + o.Domain
	} else if o.APIPrefix != "" {
		where += ", JetStream API " + o.APIPrefix
	}
	return where
}
