package natskv_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

const (
	term = 2 * time.Second
	skew = 100 * time.Millisecond
)

// trial is an election of real candidates, watched for what must never happen.
// All of them share this machine's clock.
type trial struct {
	t     testing.TB
	names []string

	mu        sync.Mutex
	campaigns map[string]*leaderelection.Campaign
	cancel    map[string]context.CancelFunc
	views     []*leaderelection.TimeView // of all leaderships, in the order of their begin
	number    leaderelection.ElectionNumber
	leader    string
	began     chan struct{} // closed and renewed by each leadership
}

// newTrial starts one candidate for each decider, and a goroutine that looks for
// overlaps until the test ends.
func newTrial(t testing.TB, deciders ...leaderelection.RaceDecider) *trial {
	tr := &trial{t: t, campaigns: map[string]*leaderelection.Campaign{}, cancel: map[string]context.CancelFunc{}, began: make(chan struct{})}
	for i, d := range deciders {
		id := fmt.Sprintf("candidate-%d", i+1)
		ctx, cancel := context.WithCancel(t.Context())
		c, err := leaderelection.Config{
			Decider: d, LeaderID: id, TermLength: term, MaxClockSkew: skew,
			OnElected: func(ctx context.Context, view *leaderelection.TimeView) { tr.leadership(ctx, id, view) },
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tr.campaigns[id], tr.cancel[id], tr.names = c, cancel, append(tr.names, id)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for look := time.NewTicker(time.Millisecond); ; <-look.C {
			tr.look()
			select {
			case <-stop:
				look.Stop()
				return
			default:
			}
		}
	}()
	t.Cleanup(func() {
		for _, id := range tr.names {
			tr.cancel[id]()
		}
		for _, id := range tr.names {
			_ = tr.campaigns[id].Wait()
		}
		close(stop)
		<-stopped
	})
	return tr
}

// leadership is OnElected.
func (tr *trial) leadership(ctx context.Context, id string, view *leaderelection.TimeView) {
	tr.mu.Lock()
	if view.ElectionNumber() <= tr.number {
		tr.t.Errorf("%s begins leadership %d after leadership %d", id, view.ElectionNumber(), tr.number)
	}
	tr.number, tr.leader = view.ElectionNumber(), id
	for _, earlier := range tr.views {
		if earlier.ValueInFuture() {
			tr.t.Errorf("%s begins leadership %d while the view of leadership %d is valid", id, tr.number, earlier.ElectionNumber())
		}
	}
	tr.views = append(tr.views, view)
	close(tr.began)
	tr.began = make(chan struct{})
	tr.mu.Unlock()
	<-ctx.Done()
}

// look looks for two views that are valid at once. Each is asked before and after
// all others, so that a hand-over in the meantime is no false alarm.
func (tr *trial) look() {
	tr.mu.Lock()
	views := tr.views[max(0, len(tr.views)-4):]
	tr.mu.Unlock()
	var before []*leaderelection.TimeView
	for _, v := range views {
		if v.ValueInFuture() {
			before = append(before, v)
		}
	}
	if len(before) > 1 && before[0].ValueInFuture() {
		tr.t.Errorf("the views of leaderships %d and %d are valid at once", before[0].ElectionNumber(), before[1].ElectionNumber())
	}
}

// after waits for a leadership later than number, and returns it and its leader.
func (tr *trial) after(number leaderelection.ElectionNumber, bound time.Duration) (leaderelection.ElectionNumber, string) {
	tr.t.Helper()
	begin := time.Now()
	patience := time.After(bound)
	for {
		tr.mu.Lock()
		n, id, began := tr.number, tr.leader, tr.began
		tr.mu.Unlock()
		if n > number {
			tr.t.Logf("%s leads with leadership %d after %v", id, n, time.Since(begin).Round(time.Millisecond))
			return n, id
		}
		select {
		case <-began:
		case <-patience:
			tr.t.Fatalf("no leadership after %d within %v", number, bound)
		}
	}
}

// view is that of the latest leadership.
func (tr *trial) view() *leaderelection.TimeView {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.views[len(tr.views)-1]
}

// over waits until a view is over.
func (tr *trial) over(v *leaderelection.TimeView, bound time.Duration) {
	tr.t.Helper()
	tr.wait("the end of a view", bound, func() bool { return !v.ValueInFuture() })
}

// wait waits until f says true.
func (tr *trial) wait(what string, bound time.Duration, f func() bool) {
	tr.t.Helper()
	begin := time.Now()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !f() {
		if time.Since(begin) > bound {
			tr.t.Fatalf("%s: not within %v", what, bound)
		}
		<-again.C
	}
}

// deciders returns three, each with a connection of its own.
func deciders(t testing.TB, connect func() jetstream.JetStream) []leaderelection.RaceDecider {
	var ds []leaderelection.RaceDecider
	for range 3 {
		ds = append(ds, natskv.NewDecider(connect(), bucket, key, nil))
	}
	return ds
}

// The server is stopped in the middle of a leadership, for longer than a term, and
// started again with what it had on disk: there is a new leader soon after, and
// no number comes again.
func TestServerRestart(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: a cluster, and what its clients wait for")
	}
	s := natstest.Start(t)
	makeBucket(t, s.JetStream(t))
	tr := newTrial(t, deciders(t, func() jetstream.JetStream { return s.JetStream(t) })...)
	number, _ := tr.after(0, 10*time.Second)

	s.Stop()
	tr.over(tr.view(), term) // nobody can extend: it ends by itself
	s.Start(t)
	// The old term may have a bit more than two skews left to run; then it is a
	// matter of the pauses between attempts, which are a quarter of a term or less.
	number, _ = tr.after(number, term+2*skew)

	// A short outage is survived by the leadership itself.
	s.Stop()
	s.Start(t)
	view := tr.view()
	end := view.Get()
	tr.wait("an extension after the outage", term, func() bool { return view.Get().After(end) })
	if !view.ValueInFuture() {
		t.Errorf("leadership %d did not survive a short outage", number)
	}
}

// Killed at any moment, a server has on disk what it has acknowledged, as long as
// its machine lives: no number comes again.
func TestServerKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: a cluster, and what its clients wait for")
	}
	s := stores.NATS(t)
	js := func() jetstream.JetStream { return natstest.JetStream(t, s.URL()) }
	makeBucket(t, js())
	tr := newTrial(t, deciders(t, js)...)
	var number leaderelection.ElectionNumber
	for range 3 {
		number, _ = tr.after(number, 10*time.Second)
		s.Stop()
		before := tr.view()
		tr.over(before, term)
		s.Start(t)
		if e := feedtest.Read(t, natskv.NewDecider(js(), bucket, key, nil)); e.ElectionNumber < number || e.ElectionNumber == number && e.TermExpiry.Before(before.Get().Add(skew)) {
			t.Errorf("leadership %d with a view to %v was acknowledged; the record is back at %+v", number, before.Get(), e)
		}
	}
	tr.after(number, term+2*skew)
}

// Graceful hand-over is a matter of milliseconds, since the feed tells of it.
func TestHandOver(t *testing.T) {
	s := natstest.Start(t)
	makeBucket(t, s.JetStream(t))
	tr := newTrial(t, deciders(t, func() jetstream.JetStream { return s.JetStream(t) })...)
	number, leader := tr.after(0, 10*time.Second)
	for range 3 {
		to := tr.names[0]
		if leader == to {
			to = tr.names[1]
		}
		if err := leaderelection.Transfer(t.Context(), natskv.NewDecider(s.JetStream(t), bucket, key, nil), to); err != nil {
			t.Fatal(err)
		}
		if number, leader = tr.after(number, term/2); leader != to {
			t.Errorf("%s leads, not %s", leader, to)
		}
	}
}
