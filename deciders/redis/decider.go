package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
)

// Options adjusts a Decider. The zero value is right for a single server.
type Options struct {
	// Channel is where writes are published. All who take part must use the same. Channels
	// belong to the server, not to a database: two elections with one key in two databases need
	// two. Empty: "leaderelection:" and the key.
	Channel string
	// WaitReplicas is how many replicas must have a write before it counts (WAIT). If fewer
	// have it, the write is an error. Set it to the number of replicas: "What Redis can lose"
	// in the package's documentation says why. Zero: none; the master's word counts.
	WaitReplicas int
	// WaitTimeout is how long to wait for the replicas, at most. It must be shorter than the
	// client's ReadTimeout (3 s by default). Zero: 500 ms.
	WaitTimeout time.Duration
	// FeedSilence is how long the feed tolerates silence before it asks the server whether it
	// is there. A leader is heard of each half term, so with more than that it asks only if
	// nobody leads. Zero: 30 s.
	FeedSilence time.Duration
}

// Decider is one handle on an election in Redis. It is a leaderelection.RaceDecider and a
// leaderelection.ChangeFeed. Its methods may be called by several goroutines at once.
type Decider struct {
	b        *backend
	election store.Election[version]
	close    func() error
}

// backend is the store: one key.
type backend struct {
	client redis.UniversalClient
	key    string
	opts   Options
	*own
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
)

// NewDecider returns a handle on the election kept at key. Keep the client open while you use the
// Decider, and close it yourself. Others may use it, too. It should not retry (MaxRetries: -1),
// since candidates do, and know how. Options may be nil. NewDecider does no I/O, and there is
// nothing to create before.
func NewDecider(client redis.UniversalClient, key string, opts *Options) *Decider {
	b := &backend{client: client, key: key, own: newOwn()}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.Channel == "" {
		b.opts.Channel = "leaderelection:" + key
	}
	wrong := cmp.Or(durations.Fault("WaitTimeout", b.opts.WaitTimeout, durations.Least), durations.Fault("FeedSilence", b.opts.FeedSilence, durations.Least))
	b.opts.WaitTimeout = cmp.Or(b.opts.WaitTimeout, 500*time.Millisecond)
	b.opts.FeedSilence = cmp.Or(b.opts.FeedSilence, 30*time.Second)
	d := &Decider{b: b, close: func() error { return nil }, election: store.Election[version]{Store: b, Package: "redis", Ours: true, Place: place(client, key)}}
	switch d.election.Wrong = wrong; {
	case client == nil:
		d.election.Wrong = errors.New("the client is nil")
	case key == "":
		d.election.Wrong = errors.New("the key is empty; give the election a name")
	}
	return d
}

// place names the key, and the server and database as the client was told them: a key of the same
// name in another database is another election.
func place(client redis.UniversalClient, key string) string {
	p := fmt.Sprintf("redis key %q", key)
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		return fmt.Sprintf("%s at %s, database %d", p, cmp.Or(strings.TrimSuffix(o.Addr, "FailoverClient"), "the master that Sentinels know"), o.DB)
	case *redis.ClusterClient:
		return p + " at " + strings.Join(c.Options().Addrs, ",")
	}
	return p
}

// Close closes the client that Open has made. A client given to NewDecider is yours to close.
func (d *Decider) Close() error { return d.close() }

// Inherit implements open.Heir: a record that the replicas may not have stays in doubt with a new
// client, too.
func (d *Decider) Inherit(from leaderelection.RaceDecider) {
	if earlier, ours := from.(*Decider); ours {
		d.b.own = earlier.b.own
	}
}

// version is a LeaderToken: the version field, such as
// "1763728000123456-K7QF3J2M5N6P7Q2R-17"; empty if there is no key.
type version string

// CommitTS is the time at the beginning of the version, by the server's clock.
func (v version) CommitTS() time.Time {
	at, _, _ := strings.Cut(string(v), "-")
	us, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// String names the place of the record: server, database and key.
func (d *Decider) String() string { return d.election.Place }

// ReadCurrent implements leaderelection.RaceDecider. It asks the master.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	defer d.election.Heed(ctx)()
	e, err := d.read(ctx)
	if err != nil {
		return nil, d.election.Failed(ctx, store.Reading, err)
	}
	return e, nil
}

func (d *Decider) read(ctx context.Context) (*leaderelection.RaceEntry, error) {
	for {
		e, err := d.election.Current(ctx)
		if err != nil {
			return nil, err
		}
		switch err := d.b.confirm(ctx, e); {
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
	t, err := d.election.Write(ctx, entry)
	// A record of one's own that the replicas may not have would pass for confirmed.
	var lost *leaderelection.LostRaceError
	if errors.As(err, &lost) && lost.Current != nil && d.b.doubtful(lost.Current) {
		lost.Current = nil
	}
	return t, err
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (s store.Stored[version], err error) {
	a, err := b.eval(ctx, readScript, 0)
	if err != nil {
		return s, err
	}
	return stored(a)
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at version, data []byte, e *leaderelection.RaceEntry) (none version, err error) {
	if e.Extension == 0 && !e.Vacant() && b.opts.WaitReplicas > 0 {
		b.leaderships.Add(e.Incarnation)
	}
	a, err := b.eval(ctx, writeScript, b.opts.WaitReplicas, string(at), data, b.opts.Channel)
	switch {
	case err != nil:
		return none, err
	case a.status == refused:
		return none, refusal(a)
	case a.status == foreign:
		return none, errForeign
	}
	if err := b.enough(a); err != nil {
		return none, err
	}
	next := version(a.version)
	b.confirmed.Store(&next)
	return next, nil
}

// doubtful reports whether an entry could be taken for the confirmation of a write of
// this handle's, and is not known to be on as many replicas as it must: one that it
// wrote itself, and one that somebody else (Transfer, StepDown) wrote over it, which
// keeps its term's end.
func (b *backend) doubtful(e *leaderelection.RaceEntry) bool {
	if b.opts.WaitReplicas <= 0 {
		return false
	}
	v, _ := e.Token.(version)
	if c := b.confirmed.Load(); c != nil && *c == v {
		return false
	}
	return b.leaderships.Has(e.Incarnation) || strings.Contains(string(v), "-"+b.mark+"-")
}

// confirm returns nil when an entry that was read may count. A campaign
// that reads a record of its own takes it for a write that worked; where the
// replicas' answer to that write was lost, they are asked here.
func (b *backend) confirm(ctx context.Context, e *leaderelection.RaceEntry) error {
	if !b.doubtful(e) {
		return nil
	}
	v, _ := e.Token.(version)
	a, err := b.eval(ctx, touchScript, b.opts.WaitReplicas, string(v))
	if err != nil {
		return err
	}
	if a.status != done {
		return errReplaced
	}
	if err := b.enough(a); err != nil {
		return err
	}
	b.confirmed.Store(&v)
	return nil
}

var errReplaced = errors.New("the record was replaced while replicas were asked whether they have it")

// enough reports whether as many replicas have a write as must.
func (b *backend) enough(a answer) error {
	if a.replicas < int64(b.opts.WaitReplicas) {
		return fmt.Errorf("it is written, but only %d of %d replicas have it after %v (WAIT), so it does not count: repair the replicas (if you wait for fewer, a fail-over may forget writes)",
			a.replicas, b.opts.WaitReplicas, b.opts.WaitTimeout)
	}
	return nil
}

// stored is what an answer says that there is.
func stored(a answer) (s store.Stored[version], err error) {
	switch {
	case a.status == absent:
		return store.Stored[version]{None: true}, nil
	case a.status == foreign, a.version == "":
		return s, errForeign
	}
	return store.Stored[version]{Data: []byte(a.record), At: version(a.version)}, nil
}

// refusal is the error of a write that was refused, with the record in its way. One that
// cannot be read is ReadCurrent's to report.
func refusal(a answer) error {
	if a.version == "" && a.record == "" {
		a.status = absent // deleted since it was read
	}
	s, err := stored(a)
	if err != nil {
		return &leaderelection.LostRaceError{}
	}
	return &store.Refusal[version]{Current: s}
}

// Changes implements leaderelection.ChangeFeed by a subscription. It fails if the connection
// breaks, and if the server does not answer after a silence. A consumer that is too slow for the
// server's client-output-buffer-limit also loses its connection.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	s, err := within.Do(ctx, d.b.calls, func() (*redis.PubSub, error) { return d.b.subscribe(ctx) })
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })() // nothing else ends its waiting

	first, err := d.read(ctx) // after the subscription: nothing falls between
	if err != nil {
		return err
	}
	return store.News(first, func() (*leaderelection.RaceEntry, error) {
		text, err := d.b.heard(ctx, s)
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

var errForeign = store.Wrong("it is a hash, and not a record of this library (no fields \"record\" and \"version\"): name another key, or delete it")

const (
	noPassword  = "the server has no password: give the client none, or set one"
	unknownUser = "the server does not know this user and password"
	aclLacks    = "the user's ACL lacks something: see Permissions in the package's documentation"
)

// remedies are for the errors of the server that no retry can cure, by a part of their
// text: a script's errors begin with other words in older servers.
var remedies = store.Remedies{
	{Part: "WRONGTYPE", Advice: "the key holds something else: name another, or delete it"},
	{Part: "NOAUTH", Advice: "the server demands a password: give the client one", Denied: true},
	{Part: "WRONGPASS", Advice: unknownUser, Denied: true},
	{Part: "invalid username-password pair", Advice: unknownUser, Denied: true},
	{Part: "AUTH <password> called without", Advice: "the server has no password for this user: give the client none, or set one", Denied: true},
	{Part: "no password is set", Advice: noPassword, Denied: true},
	{Part: "NOPERM", Advice: aclLacks, Denied: true},
	{Part: "can't run this command or subcommand", Advice: aclLacks, Denied: true},
	{Part: "can't access at least one of the keys", Advice: "the user's ACL lacks the key: see Permissions in the package's documentation", Denied: true},
	{Part: "MOVED ", Advice: "this is a Cluster: use redis.NewClusterClient (cluster=true in an address)"},
	{Part: "DB index is out of range", Advice: "choose another database"},
	{Part: "SELECT is not allowed in cluster mode", Advice: "a Cluster has database 0 only"},
	{Part: "unknown command", Advice: "this server, or the proxy before it, lacks a command that is needed: use Redis 5 or later, directly"},
	{Part: "Write commands not allowed after non deterministic commands", Advice: "the server is too old: use Redis 5 or later"},
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	var server redis.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return store.Permanent("the client was closed; keep it open while the election goes on")
	case store.BadCertificate(err):
		return store.Permanent("check the server's certificate and the client's TLSConfig")
	case timedOut(err):
		return store.Passing(b.WhyLate())
	case !errors.As(err, &server):
		return store.Verdict{}
	}
	v := remedies.Judge(server)
	if v == (store.Verdict{}) && strings.Contains(server.Error(), "READONLY") {
		return store.Passing("this is a replica, or has just become one: name the master, or use Sentinel or Cluster to find it")
	}
	return v
}

// WhyLate is said of a call whose ctx, or the client's own time for it, has ended.
func (b *backend) WhyLate() string { return "the server did not answer in time" }

// answerTime is how long a feed waits for the server's answer: to its
// subscription, and to a PING.
const answerTime = 5 * time.Second

// subscribe returns a connection of its own, when the server has confirmed the subscription. It may
// take longer than ctx lasts.
func (b *backend) subscribe(ctx context.Context) (*redis.PubSub, error) {
	client, err := b.master(ctx)
	if err != nil {
		return nil, err
	}
	s := client.Subscribe(ctx, b.opts.Channel)
	if _, err := s.ReceiveTimeout(ctx, answerTime); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("the server has not confirmed the subscription: %w", err)
	}
	return s, nil
}

// heard returns the next message. It asks after each silence whether the server is there.
func (b *backend) heard(ctx context.Context, s *redis.PubSub) (string, error) {
	for {
		m, err := s.ReceiveTimeout(ctx, b.opts.FeedSilence)
		if timedOut(err) {
			if err = s.Ping(ctx); err == nil {
				m, err = s.ReceiveTimeout(ctx, min(answerTime, b.opts.FeedSilence))
			}
			if timedOut(err) {
				err = fmt.Errorf("the server has not answered a PING for %v: %w", min(answerTime, b.opts.FeedSilence), err)
			}
		}
		if err != nil {
			return "", err
		}
		switch m := m.(type) {
		case *redis.Message:
			return m.Payload, nil
		case *redis.Subscription: // the client has connected again by itself
			return "", errors.New("the connection broke, and messages may have been lost")
		}
	}
}

// timedOut reports whether err is that the client gave the server no more time.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
