package main

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
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
