package main

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lifeline"
)

// seat is one candidate of one election.
type seat struct {
	Addr string        // where its store is: host and port
	Key  string        // the election's name, the same for all its candidates
	ID   string        // the candidate's
	Term time.Duration // how long a lease runs unless it is renewed: the same for all libraries
	Ops  *atomic.Int64 // counts what is asked of the store

	Clients  *clients // that the elections of the process share; nil: each has its own
	Sentinel bool     // Addr is that of a sentinel of Redis

	Line      *lifeline.Lifeline // of the process; nil: none
	Undertake bool               // it never leads
}

// belief is what a candidate that was told that it leads can know of it
// afterwards. Both functions return at once, and make no request.
type belief struct {
	// told reports whether the library's own signal (a ctx, a channel) still has
	// the candidate lead: what stops long work.
	told func() bool
	// asked is the library's predicate for use before an act; nil where it has
	// none that differs from told.
	asked func() bool
}

// contestant is one way to elect a leader.
type contestant struct {
	name     string
	library  string // the module whose version is shown
	store    string // etcd, redis, kubernetes, consul or postgres
	settings string
	token    string // its fencing token, in a word
	// freezeOnly has only the store's loss measured, idleOnly only what idle processes use, deathsOnly
	// only deaths, variant none of the last two nor a fail-over within the store: variants of another one.
	freezeOnly, idleOnly, deathsOnly, variant bool
	// most is for how many elections of a process it is measured what they use; zero: any.
	most int
	// noPredicate says that belief.asked is nil.
	noPredicate bool
	// contest takes part in an election until ctx ends, as the library's
	// documentation shows it, and calls lead when it has won. When ctx has ended it
	// gives leadership up in order, and returns.
	contest func(ctx context.Context, s seat, lead func(belief)) error
}

func (c contestant) String() string { return c.name + " on " + c.store }

// The stores.
const (
	kubernetesStore = "kubernetes"
	etcdStore       = "etcd"
	redisStore      = "redis"
	consulStore     = "consul"
	postgresStore   = "postgres"
)

const (
	module         = "github.com/c8e606e4/leaderelection"
	clientGoModule = "k8s.io/client-go"
	consulModule   = "github.com/hashicorp/consul/api"
)

// slowName is this library without what its promise needs.
const slowName = "leaderelection, clock slow"

const ourSettings = "TermLength T, MaxClockSkew T/15, else defaults; signal: the leader's ctx; predicate: ValueInFuture"

var contestants = []contestant{
	{
		name: "leaderelection", library: module, store: kubernetesStore, token: "ElectionNumber",
		settings: ourSettings + "; pushed (deciders/kubernetes, the Lease's watch)",
		contest:  ours(leaseDecider, nil),
	},
	{
		name: "leaderelection, ExtendEvery 4 s", library: module, store: kubernetesStore, token: "ElectionNumber",
		settings: "the same, and ExtendEvery T*4/15", variant: true,
		contest: ours(leaseDecider, oftener),
	},
	{
		name: "client-go", library: clientGoModule, store: kubernetesStore, token: "none",
		settings: "LeaseLock, LeaseDuration T, RenewDeadline T*10/15, RetryPeriod T*2/15 (its documentation's 15 s, 10 s, 2 s); predicate: IsLeader",
		contest:  clientGo(false),
	},
	{
		name: "client-go, ReleaseOnCancel", library: clientGoModule, store: kubernetesStore, token: "none",
		settings: "the same, and ReleaseOnCancel", variant: true,
		contest: clientGo(true),
	},
	{
		name: "leaderelection", library: module, store: etcdStore, token: "ElectionNumber",
		settings: ourSettings + "; pushed",
		contest:  ours(etcdDecider, nil),
	},
	{
		name: "leaderelection, ExtendEvery 4 s", library: module, store: etcdStore, token: "ElectionNumber",
		settings: "the same, and ExtendEvery T*4/15", variant: true,
		contest: ours(etcdDecider, oftener),
	},
	{
		name: "leaderelection, polled", library: module, store: etcdStore, token: "ElectionNumber",
		settings: "the same, but the decider's feed is hidden from the library", deathsOnly: true,
		contest: ours(polledDecider, nil),
	},
	{
		name: "etcd concurrency", library: "go.etcd.io/etcd/client/v3", store: etcdStore, token: "Election.Rev",
		settings:    "Election, a Session for each candidate WithTTL(T); signal: Session.Done",
		noPredicate: true,
		contest:     etcdElection,
	},
	{
		name: "etcd concurrency, one Session", library: "go.etcd.io/etcd/client/v3", store: etcdStore, token: "Election.Rev",
		settings: "the same, and one Session for all elections of a process", idleOnly: true,
		noPredicate: true,
		contest:     etcdOneSession,
	},
	{
		name: "leaderelection", library: module, store: redisStore, token: "ElectionNumber",
		settings: ourSettings + "; pushed",
		contest:  ours(redisDecider, nil),
	},
	{
		name: "redsync", library: "github.com/go-redsync/redsync/v4", store: redisStore, token: "none",
		settings: "WithExpiry(T), else defaults (a standby tries again after 50 to 250 ms); a loop of ours extends every T/3; signal: a timer set to Until; predicate: Until",
		most:     together, // beyond, it keeps a core busy with asking
		contest:  redsyncMutex(),
	},
	{
		name: "redsync, WithRetryDelay 2 s", library: "github.com/go-redsync/redsync/v4", store: redisStore, token: "none",
		settings: "the same, and WithRetryDelay(2 s)",
		contest:  redsyncMutex(redsync.WithRetryDelay(2 * time.Second)),
	},
	{
		name: "leaderelection", library: module, store: consulStore, token: "ElectionNumber",
		settings: ourSettings + "; pushed (a blocking query)",
		contest:  ours(consulDecider, nil),
	},
	{
		name: "Consul's Lock", library: consulModule, store: consulStore, token: "LockIndex",
		settings:    "LockOpts, SessionTTL T, LockDelay T (both 15 s by default), else defaults; signal: the channel that Lock returns",
		noPredicate: true,
		contest:     consulLock,
	},
	{
		name: "advisory lock", library: "github.com/jackc/pgx/v5", store: postgresStore, token: "none",
		settings:    "pg_advisory_lock in a session for each candidate, idle_session_timeout T, asked every T/3; signal: a session that fails",
		noPredicate: true, most: together, // a session each
		contest: advisoryLock,
	},
	{
		name: slowName, library: module, store: etcdStore, token: "ElectionNumber", freezeOnly: true,
		settings: "as on etcd, but the first leader's clock is T/3 slow, five times MaxClockSkew: against its condition",
		contest:  ours(etcdDecider, slowClock),
	},
	{
		name: slowName + ", Unsynchronized", library: module, store: etcdStore, token: "ElectionNumber", freezeOnly: true,
		settings: "the same, with Unsynchronized, for clocks that cannot be trusted",
		contest: ours(etcdDecider, func(c *leaderelection.Config, s seat) {
			slowClock(c, s)
			c.ClockPolicy = leaderelection.Unsynchronized
		}),
	},
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
