//go:build go1.25

package kubernetes_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A leadership is handed over by two requests: the release, and the next one's update. One who has
// never read before reads it back once, to see whether the store tells the time. An extension is
// one request, and a standby makes none.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImitation()
		start := func(id string) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := leaderelection.Config{Decider: decider(imitationClient(t, s), "one"), LeaderID: id}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return func() { cancel(); _ = c.Wait() }
		}
		grows := func(what string, writes, reads int, do func()) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			w, g, n := s.writes, s.gets, s.watches
			s.mu.Unlock()
			do()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.writes-w != writes || s.gets-g != reads || s.watches != n {
				t.Errorf("%s: %d writes, %d reads and %d watches; want %d and %d, and no watches", what, s.writes-w, s.gets-g, s.watches-n, writes, reads)
			}
		}
		stopA := start("a")
		synctest.Wait()
		stopB := start("b")
		grows("70 s", 10, 0, func() { time.Sleep(70*time.Second + time.Millisecond) })
		grows("a hand-over", 2, 0, stopA)
		if l := s.lease("one"); *l.Spec.HolderIdentity != "b" {
			t.Errorf("%q leads", *l.Spec.HolderIdentity)
		}
		stopB()
	})
}

// A thousand feeds on one Lease, as standbys and observers have them, cost a read and a
// watch each when they begin, and nothing from then on, neither the API server nor etcd.
func TestThousandFeeds(t *testing.T) {
	const feeds, writes = 1000, 5
	k := stores.Kube(t)
	var requests atomic.Int64
	cfg := config(t, k, "admin")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, &requests} })
	d := decider(clientOf(t, cfg), "one")
	token := feedtest.Write(t, d, 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	heard := make([]chan struct{}, writes+2) // closed when all have heard of a number
	var missing [writes + 2]atomic.Int64
	for i := range heard {
		heard[i] = make(chan struct{})
		missing[i].Store(feeds)
	}
	for range feeds {
		ended.Go(func() {
			for e, err := range d.Changes(ctx) {
				if err != nil {
					t.Error(err)
					return
				}
				if n := e.ElectionNumber; missing[n].Add(-1) == 0 {
					close(heard[n])
				}
			}
		})
	}
	wait := func(number int) {
		t.Helper()
		patience := time.NewTimer(time.Minute)
		defer patience.Stop()
		select {
		case <-heard[number]:
		case <-patience.C:
			t.Fatalf("%d feeds have not told of %d within a minute", missing[number].Load(), number)
		}
	}
	wait(1)
	begun := func() bool { return requests.Load() >= 1+2*feeds }
	feedtest.Eventually(t, "all watches", begun)
	t.Logf("%d feeds began with %d requests", feeds, requests.Load()-1)
	before, in := requests.Load(), k.Etcd.Requests(t)
	for number := 2; number < 2+writes; number++ {
		at := time.Now()
		token = feedtest.Write(t, d, uint64(number), token)
		wait(number)
		t.Logf("all have heard of a write after %v", time.Since(at).Round(time.Millisecond))
	}
	own, etcd := requests.Load()-before, k.Etcd.Requests(t)-in
	t.Logf("for %d writes the API server had %d requests, etcd %d messages from it", writes, own, etcd)
	if own != writes {
		t.Errorf("for %d writes the API server had %d requests", writes, own)
	}
	if etcd > feeds/10 {
		t.Errorf("for %d writes etcd had %d messages", writes, etcd)
	}
	cancel()
	ended.Wait()
}
