package feedtest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// Idle fails t where a standby or an observer makes any request over ten terms
// while its feed is healthy. Requests is how many the server has had so far, from
// everybody: it may grow by the leader's own writes only.
func Idle(t *testing.T, newElection NewElection, requests func() int) {
	t.Helper()
	stores.Nightly(t, "it counts requests for ten terms")
	const term = time.Second
	handle := newElection(t)
	elected := make(chan leadership, 1)
	leader := start(t, leaderelection.Config{Decider: handle(), LeaderID: "leader", TermLength: term, ClockPolicy: leaderelection.SharedClock}, elected)
	await(t, "a leader", elected)
	standby := start(t, leaderelection.Config{Decider: handle(), LeaderID: "standby", TermLength: term, ClockPolicy: leaderelection.SharedClock}, elected)
	await(t, "the standby's feed", standby.feedUp)

	var asked atomic.Int64 // by the observer
	watched := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = leaderelection.WatchConfig{
			Decider: handle(),
			Trace:   &leaderelection.Trace{StoreOp: func(leaderelection.StoreOp) { asked.Add(1) }},
		}.Watch(ctx, func(context.Context, leaderelection.RaceEntry) {
			select {
			case watched <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { <-ended }()
	defer cancel()
	await(t, "the observer's first news", watched)

	// A leader extends about twice a term. What it counts, the server may have
	// counted a moment before.
	writes := func() int { return leader.count(leaderelection.OpExtend, leaderelection.OpAcquire) }
	extensions := func(n int) {
		goal := writes() + n
		until(t, "the leader's extensions", patience, func() bool { return writes() >= goal })
	}
	var all, own int
	var reads int
	var observed int64
	for range 3 {
		extensions(1)
		before, wrote, doubts := requests(), writes(), leader.count(leaderelection.OpRead)
		reads, observed = standby.count(leaderelection.OpRead), asked.Load()
		begin := time.Now()
		for time.Since(begin) < 10*term {
			extensions(1)
		}
		all, own = requests()-before, writes()-wrote
		t.Logf("in %v: the leader wrote %d times, the server had %d requests, the standby read %d times, the observer %d times",
			time.Since(begin).Round(time.Millisecond), own, all, standby.count(leaderelection.OpRead)-reads, asked.Load()-observed)
		if leader.count(leaderelection.OpRead) == doubts {
			break
		}
		// A write was late, on a busy machine, and asked after: that shows nothing of a store that is well.
	}
	if all < own-1 || all > own+1 {
		t.Errorf("the server had %d requests, where the leader wrote %d times", all, own)
	}
	if n := standby.count(leaderelection.OpRead) - reads; n != 0 {
		t.Errorf("the standby read %d times", n)
	}
	if n := asked.Load() - observed; n != 0 {
		t.Errorf("the observer read %d times", n)
	}
	if own < 15 {
		t.Errorf("the leader wrote %d times in ten terms: nothing was shown", own)
	}
}
