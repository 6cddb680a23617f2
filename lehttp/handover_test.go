//go:build go1.25

package lehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// standby is a candidate with an HTTP server behind RequireLeader that answers
// with its leadership's number.
type standby struct {
	id       string
	campaign *le.Campaign
	elected  chan time.Time
}

// join starts one on an election.
func join(t testing.TB, ctx context.Context, d le.RaceDecider, id string) *standby {
	t.Helper()
	s := &standby{id: id, elected: make(chan time.Time, 1)}
	ready := make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-ready
		lehttp.RequireLeader(s.campaign, nil)(http.HandlerFunc(s.serve)).ServeHTTP(w, r)
	})
	campaign, err := le.Config{
		Decider: d, LeaderID: id, HostPort: []string{address(server(t, h))}, MaxClockSkew: S,
		OnElected: func(context.Context, *le.TimeView) { s.elected <- time.Now() },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.campaign = campaign
	close(ready)
	return s
}

func (s *standby) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	fmt.Fprint(w, uint64(le.ViewFrom(r.Context()).ElectionNumber()))
}

// load asks a URL again and again, and remembers the greatest leadership that any
// answer came from.
type load struct {
	t        testing.TB
	client   *http.Client
	url      string
	greatest atomic.Uint64
	answered atomic.Int64
	mu       sync.Mutex
	faults   []string
}

func (l *load) run(ctx context.Context, method string) {
	for ctx.Err() == nil {
		before := l.greatest.Load()
		req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, l.url, strings.NewReader("payload"))
		if err != nil {
			l.fault("%v", err)
			return
		}
		res, err := l.client.Do(req)
		if err != nil {
			l.fault("%s: %v", method, err)
			continue
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		var number uint64
		if _, scan := fmt.Sscan(string(text), &number); res.StatusCode != http.StatusOK || err != nil || scan != nil {
			l.fault("%s: %s %q %v", method, res.Status, text, err)
			continue
		}
		// The request was sent after somebody had been answered by leadership
		// before: an answer from an earlier one is from a process whose view
		// has ended.
		if number < before {
			l.fault("%s: answered by leadership %d after one by leadership %d", method, number, before)
		}
		for old := l.greatest.Load(); old < number && !l.greatest.CompareAndSwap(old, number); old = l.greatest.Load() {
		}
		l.answered.Add(1)
	}
}

func (l *load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// No idempotent request is lost over hand-overs under load, none is answered by
// a process that does not lead any more, and the router notices at once.
func TestHandoversUnderLoad(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := memory.NewDecider()
	a, b := join(t, ctx, d, "a"), join(t, ctx, d, "b")
	router, err := lehttp.Follow(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S})
	if err != nil {
		t.Fatal(err)
	}
	l := &load{t: t, client: client(t), url: proxy(t, router, &lehttp.ProxyOptions{Wait: 10 * time.Second}).URL}
	working, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { l.run(working, http.MethodGet) })
		wg.Go(func() { l.run(working, http.MethodPut) })
	}
	leader, next := a, b
	select {
	case <-a.elected:
	case <-b.elected:
		leader, next = b, a
	}
	var noticed []time.Duration
	for i := range rounds {
		for target := int64(i * 20); l.answered.Load() < target && ctx.Err() == nil; {
			runtime.Gosched() // let the load run between two hand-overs
		}
		if err := le.Transfer(ctx, d, next.id); err != nil {
			t.Fatal(err)
		}
		at := <-next.elected
		for {
			if e, led := router.Leader(); led && e.LeaderID == next.id {
				break
			}
			runtime.Gosched()
		}
		noticed = append(noticed, time.Since(at))
		leader, next = next, leader
	}
	stop()
	wg.Wait()
	cancel()
	for _, s := range []*standby{a, b} {
		if err := s.campaign.Wait(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	router.Close()
	slices.Sort(noticed)
	t.Logf("%d hand-overs, %d requests answered; the router noticed %v after OnElected at the median, %v at most", rounds, l.answered.Load(), noticed[len(noticed)/2], noticed[len(noticed)-1])
	if noticed[len(noticed)/2] > 10*time.Millisecond {
		t.Errorf("the router noticed late: %v at the median", noticed[len(noticed)/2])
	}
	for i, f := range l.faults {
		if t.Errorf("%s", f); i > 10 {
			break
		}
	}
}
