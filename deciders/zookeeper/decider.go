package zookeeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/voters"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
)

// Conn is what a Decider needs of ZooKeeper's client: a *zk.Conn has it.
type Conn interface {
	Get(path string) ([]byte, *zk.Stat, error)
	GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error)
	ExistsW(path string) (bool, *zk.Stat, <-chan zk.Event, error)
	Children(path string) ([]string, *zk.Stat, error)
	Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	Multi(ops ...any) ([]zk.MultiResponse, error)
	Sync(path string) (string, error)
}

// Options adjusts a Decider. The zero value is right for a znode whose parent exists.
type Options struct {
	// ACL is for the znodes that the Decider creates. Nil: everybody who reaches the servers
	// may do everything. Existing znodes keep theirs.
	ACL []zk.ACL
	// CreateParents makes missing parents of the znode, with the same ACL.
	CreateParents bool
	// FeedSilence is how long the feed tolerates silence before it reads the znode, to see
	// whether its watch was lost. A leader is heard of each half term, so with more than that
	// it reads only if nobody leads. Zero: 30 s.
	FeedSilence time.Duration
}

// Decider is one handle on an election in ZooKeeper. It is a leaderelection.RaceDecider, a
// leaderelection.ChangeFeed and a durability.Examiner. Its methods may be called by several
// goroutines at once.
type Decider struct {
	b        *backend
	election store.Election[token]
	close    func() error
}

// backend is the store: one znode.
type backend struct {
	conn  Conn
	path  string
	opts  Options
	login func() error // to be done before anything else; nil: nothing
	in    atomic.Bool  // it was done
	why   func() error // there is no connection; nil: it is not known
	calls within.Calls // the client knows no ctx
	guard atomic.Pointer[guard]
	gone  atomic.Bool // Close was called
}

// guard is the child by which one life of the znode is told from the next: a version is
// that of a znode, and begins again when it was deleted. It is made with the znode, in one
// transaction, by a name that is never the same twice.
type guard struct {
	czxid int64  // of the znode: the transaction that has made it
	name  string // empty: it has none
}

// anyVersion is the version of a check that a znode is there.
const anyVersion = -1

// guardPrefix is what the names of guards begin with.
const guardPrefix = "guard-"

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
	_ Conn                       = (*zk.Conn)(nil)
)

// maxCalls is how many calls of one handle may be under way at once, those included that
// were given up and have not returned.
const maxCalls = 16

// NewDecider returns a handle on the election in the znode at path ("/elections/web"). Make the
// connection by Connect, keep it open while you use the Decider, and close it yourself. Others may
// use it, too. Options may be nil. NewDecider does no I/O.
func NewDecider(conn Conn, path string, opts *Options) *Decider {
	b := &backend{conn: conn, path: path, calls: make(within.Calls, maxCalls)}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.ACL == nil {
		b.opts.ACL = zk.WorldACL(zk.PermAll)
	}
	wrong := cmp.Or(checkPath(path), durations.Fault("FeedSilence", b.opts.FeedSilence, durations.Least))
	b.opts.FeedSilence = cmp.Or(b.opts.FeedSilence, 30*time.Second)
	if conn == nil {
		wrong = cmp.Or(wrong, errors.New("the connection is nil"))
	}
	return &Decider{b: b, election: store.Election[token]{Store: b, Package: "zookeeper", Place: "znode " + path, Wrong: wrong}}
}

// checkPath says what ZooKeeper would not allow.
func checkPath(path string) error {
	if len(path) < 2 || path[0] != '/' || len(path) > 1000 {
		return errors.New("the path must begin with a / and have 2 to 1000 bytes")
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("the path must not have %q between slashes, nor a / at its end", name)
		}
	}
	for _, r := range path {
		if r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
			return fmt.Errorf("the path must not have the letter %q", r)
		}
	}
	if strings.HasPrefix(path, "/zookeeper/") {
		return errors.New("what is below /zookeeper is ZooKeeper's own")
	}
	return nil
}

// Close closes the connection that Open has made. A connection given to NewDecider is yours to
// close.
func (d *Decider) Close() error {
	if d.close != nil {
		d.b.gone.Store(true)
		return d.close()
	}
	return nil
}

// token is a version of the znode. The zero one says that there is no znode.
type token struct {
	czxid   int64
	version int32
	guard   string
	millis  int64 // when it was written
}

// CommitTS is when the znode was written, by the clock of ZooKeeper's leader, in
// milliseconds.
func (t token) CommitTS() time.Time {
	if t.czxid == 0 {
		return time.Time{}
	}
	return time.UnixMilli(t.millis).UTC()
}

// String names the place of the record: the znode, and the servers that Open was given (a
// connection tells only the one that it has just now).
func (d *Decider) String() string { return d.election.Place }

// ReadCurrent implements leaderelection.RaceDecider. The server that the client is connected to
// first asks the leader for what it lacks (sync), so the read is that fresh.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider, in one transaction.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// do makes a call of the client's, which knows no ctx.
func do[T any](ctx context.Context, b *backend, call func() (T, error)) (T, error) {
	v, err := within.Do(ctx, b.calls, func() (none T, err error) {
		switch {
		case b.gone.Load():
			return none, errClosed
		case b.login != nil && !b.in.Load():
			if err := b.login(); err != nil {
				return none, err
			}
			b.in.Store(true) // from now on the client does it by itself
		}
		return call()
	})
	if b.why != nil && (errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrConnectionClosed)) {
		if why := b.why(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
	}
	return v, err
}

// WhyLate says why a call may have been late.
func (b *backend) WhyLate() string {
	if b.why != nil {
		if why := b.why(); why != nil {
			return "there is no connection: " + why.Error()
		}
	}
	return "the server has not answered"
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (store.Stored[token], error) {
	return do(ctx, b, func() (s store.Stored[token], err error) {
		synced, err := b.conn.Sync(b.path)
		switch {
		case err != nil:
			return s, err
		case synced != b.path:
			return s, errNotZooKeeper
		}
		data, stat, err := b.conn.Get(b.path)
		if errors.Is(err, zk.ErrNoNode) {
			return store.Stored[token]{None: true}, nil
		}
		if err != nil {
			return s, err
		}
		return b.stored(data, stat)
	})
}

// stored is what a read has returned.
func (b *backend) stored(data []byte, stat *zk.Stat) (s store.Stored[token], err error) {
	switch {
	case stat.Czxid <= 0 || stat.Mzxid < stat.Czxid || int(stat.DataLength) != len(data):
		return s, errNotZooKeeper
	case stat.EphemeralOwner != 0:
		return s, store.Wrong("the znode is ephemeral, or has a time to live: it would vanish by itself. Name another")
	case stat.Version < 0:
		return s, errCounted
	}
	g := guard{czxid: stat.Czxid}
	if stat.NumChildren > 0 {
		if g, err = b.guarded(stat.Czxid); err != nil {
			return s, err
		}
	}
	return store.Stored[token]{Data: data, At: token{stat.Czxid, stat.Version, g.name, stat.Mtime}}, nil
}

// guarded returns the guard of the znode that was made by the transaction czxid.
func (b *backend) guarded(czxid int64) (guard, error) {
	if g := b.guard.Load(); g != nil && g.czxid == czxid {
		return *g, nil
	}
	names, stat, err := b.conn.Children(b.path)
	switch {
	case errors.Is(err, zk.ErrNoNode) || err == nil && stat.Czxid != czxid:
		return guard{}, errReplaced
	case err != nil:
		return guard{}, err
	}
	g := guard{czxid: czxid}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, guardPrefix) {
			g.name = name
			b.guard.Store(&g)
			break
		}
	}
	return g, nil
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, was token, data []byte, _ *leaderelection.RaceEntry) (token, error) {
	next, err := do(ctx, b, func() (token, error) { return b.swap(was, data) })
	switch {
	case errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode) && was.czxid != 0:
		b.guard.Store(nil) // it may be the one that is gone
		return token{}, &leaderelection.LostRaceError{Err: err}
	case errors.Is(err, zk.ErrNoNode) && b.opts.CreateParents:
		if err := b.createParents(ctx); err != nil {
			return token{}, fmt.Errorf("making the parents: %w", err)
		}
		next, err = do(ctx, b, func() (token, error) { return b.swap(was, data) })
		if errors.Is(err, zk.ErrNodeExists) {
			return token{}, &leaderelection.LostRaceError{Err: err}
		}
	}
	return next, err
}

// swap is one transaction: all of it happens or nothing. A new znode is written twice, for
// only the answer to that tells by which transaction it was made.
func (b *backend) swap(was token, data []byte) (token, error) {
	if was.version == math.MaxInt32 { // some server versions then begin at the other end, and -1 stands for any
		return token{}, errCounted
	}
	g := was.guard
	ops := []any{&zk.CheckVersionRequest{Path: b.path + "/" + g, Version: anyVersion}}
	if g == "" {
		g = guardPrefix + rand.Text()
		ops = []any{&zk.CreateRequest{Path: b.path + "/" + g, Acl: b.opts.ACL}}
	}
	if was.czxid == 0 {
		ops = append([]any{&zk.CreateRequest{Path: b.path, Data: data, Acl: b.opts.ACL}}, ops...)
	}
	ops = append(ops, &zk.SetDataRequest{Path: b.path, Data: data, Version: was.version})
	answers, err := b.conn.Multi(ops...)
	if err != nil {
		return token{}, err
	}
	if len(answers) != len(ops) {
		return token{}, errNotZooKeeper
	}
	for _, a := range answers {
		if a.Error != nil {
			return token{}, a.Error
		}
	}
	stat := answers[len(answers)-1].Stat
	if stat == nil || stat.Version != was.version+1 || int(stat.DataLength) != len(data) || stat.Mzxid < stat.Czxid || stat.Czxid <= 0 ||
		was.czxid == 0 && stat.Czxid != stat.Mzxid || was.czxid != 0 && stat.Czxid != was.czxid {
		return token{}, errNotZooKeeper
	}
	return token{stat.Czxid, stat.Version, g, stat.Mtime}, nil
}

// createParents makes those that are missing, from the top.
func (b *backend) createParents(ctx context.Context) error {
	for i := 1; i < len(b.path); i++ {
		if b.path[i] != '/' {
			continue
		}
		_, err := do(ctx, b, func() (string, error) { return b.conn.Create(b.path[:i], nil, 0, b.opts.ACL) })
		// One who may not create here may find it there all the same.
		if err != nil && !errors.Is(err, zk.ErrNodeExists) && !errors.Is(err, zk.ErrNoAuth) {
			return err
		}
	}
	return nil
}

var (
	errNotZooKeeper = errors.New("this is not how ZooKeeper responds to such a request: does something else answer?")
	errReplaced     = errors.New("the znode was deleted and made again while it was read")
	errClosed       = errors.New("the Decider was closed")
	errCounted      = store.Wrong("the znode was written 2 to the 31 times, and its version cannot count further: stop all candidates, delete the znode, " +
		"and put a vacant record in its place")
)

// permanent are the errors that no retry can cure.
func (b *backend) permanent() store.Remedies {
	return store.Remedies{
		{Err: errClosed, Advice: "keep it open while the election goes on"},
		{Err: zk.ErrNoAuth, Advice: "candidates need the permissions create (of the parent), read and write, by the znode's ACL (zkCli.sh getAcl); " +
			"give the connection its credentials (user:password@ in an address)", Denied: true},
		{Err: zk.ErrAuthFailed, Advice: "check the credentials", Denied: true},
		{Err: zk.ErrInvalidACL, Advice: "an ACL for the owner needs a connection with credentials (user:password@ in an address)"},
		{Err: zk.ErrNoChildrenForEphemerals, Advice: "the parent is an ephemeral znode, which can have no children: name another path"},
		{Err: zk.ErrNoNode, Advice: fmt.Sprintf("the parent of %s is missing: make it, or set Options.CreateParents (create=true in an address)", b.path)},
	}
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	if v := b.permanent().Judge(err); v != (store.Verdict{}) {
		return v
	}
	switch {
	case store.BadCertificate(err):
		return store.Permanent("check the server's certificate and tls_ca")
	case errors.Is(err, zk.ErrNoServer):
		return store.Passing("no server answers, or none of them has a quorum")
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrSessionExpired), errors.Is(err, zk.ErrSessionMoved):
		return store.Passing("the connection broke, so the outcome is not known")
	case strings.Contains(err.Error(), "-125"):
		return store.Passing("a quota is exceeded (zkCli.sh listquota)")
	}
	return store.Verdict{}
}

var _ durability.Examiner = (*Decider)(nil)

// configuration is the znode in which an ensemble tells of its servers.
const configuration = "/zookeeper/config"

// Durability implements durability.Examiner. It reads the ensemble's list of servers, which
// everybody may read unless its ACL was changed. It cannot see forceSync=no.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	err := d.election.Ready(ctx)
	var data []byte
	if err == nil {
		data, err = do(ctx, d.b, func() ([]byte, error) {
			data, _, err := d.b.conn.Get(configuration)
			return data, err
		})
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining the ensemble of", fmt.Errorf("reading %s: %w", configuration, err))
	}
	voting := 0
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(name, "server.") && !strings.Contains(value, ":observer") {
			voting++
		}
	}
	return voters.Examine(voting, "there is one server that votes", "there are %d servers that vote"), nil
}
