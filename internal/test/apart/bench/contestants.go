package main

import (
	"context"
	"errors"
	"net"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

// seat is one candidate of one election.
type seat struct {
	Addr string        // where its store is: host and port
	Key  string        // the election's name, the same for all its candidates
	ID   string        // the candidate's
	Term time.Duration // how long a lease runs unless it is renewed: the same for all libraries
	Ops  *atomic.Int64 // counts what is asked of the store
}

// contestant is one way to elect a leader.
type contestant struct {
	name     string
	library  string // the module whose version is shown
	store    string
	settings string
	// contest takes part in an election until ctx ends, as the library's documentation shows it,
	// and calls lead when it has won. When ctx has ended it gives leadership up in order, and
	// returns.
	contest func(ctx context.Context, s seat, lead func()) error
}

func (c contestant) String() string { return c.name + " on " + c.store }

// The stores.
const (
	kubernetesStore = "kubernetes"
	etcdStore       = "etcd"
	redisStore      = "redis"
)

const (
	module         = "github.com/c8e606e4/leaderelection"
	clientGoModule = "k8s.io/client-go"
	redsyncModule  = "github.com/go-redsync/redsync/v4"
)

const ourSettings = "TermLength T, MaxClockSkew T/15, else defaults"

var contestants = []contestant{
	{"leaderelection", module, kubernetesStore, ourSettings + "; pushed by the Lease's watch (deciders/kubernetes)", ours(leaseDecider, 0)},
	{"leaderelection, ExtendEvery 4 s", module, kubernetesStore, "the same, and ExtendEvery T*4/15", ours(leaseDecider, 4)},
	{"client-go", clientGoModule, kubernetesStore, "LeaseLock, LeaseDuration T, RenewDeadline T*10/15, RetryPeriod T*2/15 (its documentation's 15 s, 10 s, 2 s)", clientGo(false)},
	{"client-go, ReleaseOnCancel", clientGoModule, kubernetesStore, "the same, and ReleaseOnCancel", clientGo(true)},
	{"leaderelection", module, etcdStore, ourSettings + "; pushed", ours(etcdDecider, 0)},
	{"etcd concurrency", "go.etcd.io/etcd/client/v3", etcdStore, "Election, a Session for each candidate WithTTL(T)", etcdElection},
	{"leaderelection", module, redisStore, ourSettings + "; pushed", ours(redisDecider, 0)},
	{"redsync", redsyncModule, redisStore, "WithExpiry(T), else defaults (a standby tries again after 50 to 250 ms); a loop of ours extends every T/3", redsyncMutex()},
	{"redsync, WithRetryDelay 2 s", redsyncModule, redisStore, "the same, and WithRetryDelay(2 s)", redsyncMutex(redsync.WithRetryDelay(2 * time.Second))},
}

// version returns the version of a module that this program was built with.
func version(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path && path != module {
			return m.Version
		}
	}
	return "this tree"
}

// opener opens the election of a seat on one kind of store, and returns what ends its client.
type opener func(s seat) (d leaderelection.RaceDecider, done func(), err error)

// ours contests with this library. It extends after so many fifteenths of the term; 0 is the default.
func ours(open opener, extend int) func(context.Context, seat, func()) error {
	return func(ctx context.Context, s seat, lead func()) error {
		d, done, err := open(s)
		if err != nil {
			return err
		}
		defer done()
		err = leaderelection.Config{
			Decider: d, LeaderID: s.ID, TermLength: s.Term, MaxClockSkew: s.Term / 15, ExtendEvery: s.Term * time.Duration(extend) / 15,
			OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
				lead()
				<-ctx.Done()
			},
		}.Acquire(ctx)
		if ctx.Err() == nil {
			return err
		}
		return nil
	}
}

func etcdDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c, err := etcdClient(s)
	return etcd.NewDecider(c, s.Key, nil), func() { _ = c.Close() }, err
}

func redisDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c := redisClient(s, goredis.Options{MaxRetries: -1, ContextTimeoutEnabled: true}) // as the package's example
	return redis.NewDecider(c, s.Key, nil), func() { _ = c.Close() }, nil
}

func leaseDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c, err := leaseClient(s)
	if err != nil {
		return nil, nil, err
	}
	return kubernetes.NewDecider(c.RESTClient(), namespace, s.Key, nil), func() {}, nil
}

// messages counts what a gRPC client sends, in single calls and on streams.
type messages struct{ s seat }

func (messages) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (messages) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (messages) HandleConn(context.Context, stats.ConnStats)                       {}
func (m messages) HandleRPC(_ context.Context, r stats.RPCStats) {
	if _, sent := r.(*stats.OutPayload); sent {
		m.s.Ops.Add(1)
	}
}

func etcdClient(s seat) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{s.Addr},
		DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(messages{s})},
		Logger:      zap.NewNop(),
	})
}

// etcdElection contests as the package's example does: a session, Campaign, and a leader that
// watches the session.
func etcdElection(ctx context.Context, s seat, lead func()) error {
	client, err := etcdClient(s)
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(s.Term/time.Second)))
	if err != nil {
		return err
	}
	defer session.Close()
	election := concurrency.NewElection(session, s.Key)
	if err := election.Campaign(ctx, s.ID); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	lead()
	select {
	case <-session.Done():
		return nil
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), s.Term)
	defer cancel()
	return election.Resign(last)
}

// writes counts a connection's writes: go-redis makes one for each request.
type writes struct {
	net.Conn
	s seat
}

func (w writes) Write(b []byte) (int, error) {
	w.s.Ops.Add(1)
	return w.Conn.Write(b)
}

func redisClient(s seat, o goredis.Options) *goredis.Client {
	o.Addr = s.Addr
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return writes{c, s}, nil
	}
	return goredis.NewClient(&o)
}

// redsyncMutex holds a lock for as long as it can.
func redsyncMutex(options ...redsync.Option) func(context.Context, seat, func()) error {
	return func(ctx context.Context, s seat, lead func()) error {
		client := redisClient(s, goredis.Options{})
		defer client.Close()
		mutex := redsync.New(redsyncpool.NewPool(client)).NewMutex(s.Key, append(slices.Clone(options), redsync.WithExpiry(s.Term))...)
		for mutex.LockContext(ctx) != nil {
			if ctx.Err() != nil {
				return nil
			}
		}
		lead()
		return hold(ctx, s, mutex)
	}
}

// hold extends a lock three times a lease, until it is lost or ctx ends. The library has no such
// loop; this one respects Until, as its documentation has callers do.
func hold(ctx context.Context, s seat, mutex *redsync.Mutex) error {
	held, drop := context.WithCancel(ctx)
	defer drop()
	end := time.AfterFunc(time.Until(mutex.Until()), drop)
	defer end.Stop()
	tick := time.NewTicker(s.Term / 3)
	defer tick.Stop()
	for {
		select {
		case <-held.Done():
			if ctx.Err() == nil {
				return nil
			}
			last, cancel := context.WithTimeout(context.Background(), s.Term)
			defer cancel()
			_, err := mutex.UnlockContext(last)
			return err
		case <-tick.C:
		}
		ok, err := mutex.ExtendContext(held)
		var taken *redsync.ErrTaken
		switch {
		case ok:
			end.Reset(time.Until(mutex.Until()))
		case errors.As(err, &taken):
			return nil // it is another's
		}
	}
}
