// Package etcd keeps an election in etcd, as one key. A transaction on the key's revision decides
// who leads, and a watch tells candidates and observers of every change within about a millisecond.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	...
//	decider := etcd.NewDecider(client, "elections/web", nil)
//
// # What is written where
//
// One key holds the record as JSON (etcdctl get shows it). It is not attached to an etcd lease: the
// term in the record is the lease. So an etcd that is down, or that has lost its leader, forgets
// nothing. A leader whose keep-alives fail is not deposed by the store.
//
// Never delete the key: the election is then empty, nothing shows that there was a record, and two
// may lead for a term. A value of no bytes is damage, and is left alone.
//
// # Permissions
//
// With etcd's authentication on, candidates need readwrite on the key, observers read (which
// includes watch):
//
//	etcdctl role grant-permission candidate readwrite elections/web
//	etcdctl role grant-permission observer  read      elections/web
//
// # What etcd promises
//
// A transaction is atomic, and the keyspace is strictly serializable: of two writes conditional on
// one revision one wins. A confirmed write is in the log of a majority of the members and on their
// disks. Reads here are linearizable: each costs a round of the members' quorum, and none comes
// from a single member that may lag. See https://etcd.io/docs/v3.6/learning/api_guarantees/.
//
// These can lose confirmed writes:
//
//   - members with --unsafe-no-fsync. No client can see this setting;
//   - a cluster of one member before etcd 3.4.21 and 3.5.5, which answered before the data was on
//     disk (https://github.com/etcd-io/etcd/issues/14370);
//   - the loss of a majority of the data directories at once;
//   - a restore from a snapshot, whose revisions also go back. Restore with etcdutl snapshot
//     restore --bump-revision --mark-compacted, so that no revision that a candidate remembers
//     comes up again. Let a whole term pass between the end of the old cluster and the start of the
//     new one.
//
// Compaction is harmless. The command leaderelect doctor asks the cluster for its members and their
// alarms (Decider.Durability).
//
// A transaction that is given up goes on once it has reached the log. No read shows it before a
// majority has it. The store has no clock: CommitTS is always zero.
//
// # What it costs
//
// A leader writes about 515 times an hour at the default term of 15 s (one transaction each 7 s,
// some 0.5 KB). Standbys and observers hold one watch and ask nothing while it is healthy. All
// watches of one client share one gRPC stream. A standby without a feed would read 480 times an
// hour. Every write adds a revision of the key, which stays until it is compacted: run etcd with
// --auto-compaction-retention, as for any other use. A record has at most 256 KiB here. etcd's own
// limit is 1.5 MiB (--max-request-bytes).
//
// # With users, before etcd 3.5
//
// After a restart, and when a token has expired (simple tokens: after five idle minutes), etcd before
// 3.5 refuses even the new login of an old client, and all its calls fail for good. Package
// deciders/open replaces such a client after a term. With a client of your own, use etcd from 3.5 on.
//
// # How the feed works
//
// It reads the key, and watches from the next revision, so that it misses nothing. The watch
// demands a raft leader (clientv3.WithRequireLeader): with a member that is cut off from the others
// it fails instead of staying silent. After a broken connection etcd's client goes on from the last
// revision seen. If that has been compacted meanwhile, the feed reads again. If there is no
// connection for longer than Options.FeedGrace the feed fails, and candidates poll until it is
// back.
//
// A client notices a network that swallows packets only if it sends keep-alives. Set
// clientv3.Config.DialKeepAliveTime (10 s is the least that gRPC does) and DialKeepAliveTimeout (3
// s), as Open does. Without them a standby is behind until the term runs out, when it always reads.
// A leader's calls are lost until the system gives the connection up, after minutes.
//
// Open's client also closes a connection when a call on it is given up, if nothing was heard on the
// connection since the call began. So a connection that dies silently costs one call. With a client
// of yours it costs the calls of up to 13 s. A term of 20 s survives that.
//
// # Certificates
//
// Open's client renews them, see Open. A client that you make uses its tls.Config: set
// GetClientCertificate there.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
)

// Options adjusts a Decider. The zero value is right for most.
type Options struct {
	// FeedGrace is how long the feed tolerates being without a connection before it fails, and
	// candidates and observers poll. A shorter time notices an outage earlier. A longer time
	// avoids polls while a member restarts. Zero: 1 s.
	FeedGrace time.Duration
}

// Decider is an election in etcd. It is a leaderelection.RaceDecider and a
// leaderelection.ChangeFeed. Its methods may be called by several goroutines at once.
type Decider struct {
	b        *backend
	election store.Election[version]
	close    func() error
}

// backend is the store: one key.
type backend struct {
	client client
	key    string
	grace  time.Duration
	login  *atomic.Pointer[error] // of Open's client: why its last login has failed; nil: it is not known
}

// client is what a Decider needs of *clientv3.Client.
type client interface {
	Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)
	Txn(ctx context.Context) clientv3.Txn
	Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan
	ActiveConnection() *grpc.ClientConn
	cluster
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
	_ client                     = (*clientv3.Client)(nil)
)

// version is a LeaderToken: the revision at which the key was last written, 0
// if there is none. Revisions are the whole keyspace's, so a key that is
// deleted and made again does not come back to one.
type version int64

// CommitTS is the zero time: etcd keeps no time of writes.
func (version) CommitTS() time.Time { return time.Time{} }

// NewDecider returns the election kept in key. Keep the client open while you use the Decider, and
// close it yourself. Others may use it, too. Options may be nil. There is nothing to create before.
func NewDecider(client *clientv3.Client, key string, opts *Options) *Decider {
	b := &backend{client: client, key: key, grace: time.Second}
	var wrong error
	if opts != nil && opts.FeedGrace != 0 {
		b.grace, wrong = opts.FeedGrace, durations.Fault("FeedGrace", opts.FeedGrace, durations.Least)
	}
	d := &Decider{b: b, close: func() error { return nil }, election: store.Election[version]{Store: b, Package: "etcd", Place: place(key, client.Endpoints())}}
	if d.election.Wrong = wrong; key == "" {
		d.election.Wrong = errors.New("etcd has no empty key; give the election a name")
	}
	return d
}

// place names the key and the endpoints: the same key elsewhere is another election.
func place(key string, endpoints []string) string {
	return fmt.Sprintf("etcd key %q", key) + store.At(strings.Join(endpoints, ","))
}

// Close closes the client that Open has made. A client given to NewDecider is yours to close.
func (d *Decider) Close() error { return d.close() }

// String names the place of the record: the key and the endpoints.
func (d *Decider) String() string { return d.election.Place }

// ReadCurrent implements leaderelection.RaceDecider. It is linearizable, so never stale.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider, in one transaction. A refusal is a
// leaderelection.LostRaceError with the current record, read by the same transaction.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (store.Stored[version], error) {
	s, _, err := b.read(ctx)
	return s, err
}

// read returns what is stored, and the revision of the keyspace that it was read at.
func (b *backend) read(ctx context.Context) (s store.Stored[version], at int64, err error) {
	defer b.hasten(ctx)()
	answer, err := b.client.Get(ctx, b.key)
	if err == nil && answer.Header.GetRevision() <= 0 {
		err = errNotEtcd
	}
	if err != nil {
		return s, 0, err
	}
	return stored(answer.Kvs), answer.Header.GetRevision(), nil
}

// stored is what etcd says of the key: nothing if there is none.
func stored(kvs []*mvccpb.KeyValue) store.Stored[version] {
	if len(kvs) == 0 {
		return store.Stored[version]{None: true}
	}
	return store.Stored[version]{Data: kvs[0].Value, At: version(kvs[0].ModRevision)}
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at version, data []byte, _ *leaderelection.RaceEntry) (version, error) {
	defer b.hasten(ctx)()
	answer, err := b.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(b.key), "=", int64(at))).
		Then(clientv3.OpPut(b.key, string(data))).
		Else(clientv3.OpGet(b.key)).
		Commit()
	if err != nil {
		return 0, err
	}
	// Only an answer that is etcd's decides the race.
	var done *etcdserverpb.ResponseOp
	if len(answer.Responses) == 1 {
		done = answer.Responses[0]
	}
	now := version(answer.Header.GetRevision())
	switch {
	case answer.Succeeded && done.GetResponsePut() != nil && now > at:
		return now, nil
	case !answer.Succeeded && done.GetResponseRange() != nil && now > 0:
		return 0, &store.Refusal[version]{Current: stored(done.GetResponseRange().GetKvs())}
	}
	return 0, errNotEtcd
}
