package proctest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

const (
	term     = 5 * time.Second
	skew     = 100 * time.Millisecond
	attempt  = term / 4 // how long a campaign waits for an answer
	patience = 30 * time.Second
)

// Faults holds a leader on a store that speaks TCP to what it must bear, within this
// process: an answer lost after the write has landed, an answer later than the attempt, a
// request cut off half way, a connection closed. A leader with time left keeps its
// leadership through each, and extends it when the fault is over. It leads through proxy,
// with the handle leader; another waits beside it, with the handle standby.
func Faults(t *testing.T, leader, standby leaderelection.RaceDecider, proxy *stores.Relay) {
	t.Helper()
	stores.Nightly(t, "it cuts connections and waits")
	l := start(t, "leader", leader)
	r := l.elected(t)
	start(t, "standby", standby)
	for _, fault := range []struct {
		name  string
		begin func()
	}{
		{"no answers", proxy.Mute},
		{"requests cut off half way", func() { proxy.Sever(60) }},
		{"answers later than the attempt", func() { proxy.Delay(attempt + attempt/2) }},
		{"connections closed and refused", proxy.Refuse},
		{"nothing comes through", proxy.Cut},
	} {
		l.extended(t, r)
		end := r.view.Get()
		err := l.extensionFails(t, fault.begin)
		proxy.Heal()
		proxy.Delay(0)
		t.Logf("%s: healed with %v left", fault.name, time.Until(end))
		l.extended(t, r)
		if !r.view.ValueInFuture() {
			t.Fatalf("%s (%v): the view has ended", fault.name, err)
		}
		t.Logf("%s: an extension failed (%v), and the leadership goes on", fault.name, err)
	}
}

type leading struct {
	ctx  context.Context
	view *leaderelection.TimeView
}

// candidate is a campaign and what it reports.
type candidate struct {
	leaderships chan leading
	mu          sync.Mutex
	failed      []error       // extensions that failed, and why
	more        chan struct{} // closed, and made afresh, when something has happened
}

func start(t *testing.T, id string, d leaderelection.RaceDecider) *candidate {
	t.Helper()
	c := &candidate{leaderships: make(chan leading, 10), more: make(chan struct{})}
	campaign, err := leaderelection.Config{
		Decider: d, LeaderID: id, TermLength: term, MaxClockSkew: skew,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			c.leaderships <- leading{ctx, view}
			<-ctx.Done()
		},
		Trace: &leaderelection.Trace{
			StoreOp: func(op leaderelection.StoreOp) {
				if op.Kind == leaderelection.OpExtend && op.Err != nil {
					c.happened(op.Err)
				}
			},
			Extended: func(leaderelection.ViewExtended) { c.happened(nil) },
		},
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { <-campaign.Done() })
	return c
}

func (c *candidate) happened(failure error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if failure != nil {
		c.failed = append(c.failed, failure)
	}
	close(c.more)
	c.more = make(chan struct{})
}

func (c *candidate) elected(t *testing.T) leading {
	t.Helper()
	select {
	case r := <-c.leaderships:
		return r
	case <-after(t):
		t.Fatal("nobody was elected")
	}
	return leading{}
}

// after is closed when nothing is to be waited for any longer.
func after(t *testing.T) <-chan struct{} {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx.Done()
}

// until waits for something that a candidate reports.
func (c *candidate) until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for late := after(t); ; {
		c.mu.Lock()
		ok, more := happened(), c.more
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// extended waits until the leadership's view moves on; the leadership must not end.
func (c *candidate) extended(t *testing.T, r leading) {
	t.Helper()
	end := r.view.Get()
	stop := context.AfterFunc(r.ctx, func() { c.happened(nil) })
	defer stop()
	c.until(t, "an extension", func() bool { return r.view.Get().After(end) || r.ctx.Err() != nil })
	if cause := context.Cause(r.ctx); cause != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Fatalf("the leadership ended: %v; the extensions that failed: %v", cause, errors.Join(c.failed...))
	}
}

// extensionFails begins a fault, waits until one more extension fails, and returns why.
// That may be the last one, which the leader's feed has told of and whose answer is
// still out.
func (c *candidate) extensionFails(t *testing.T, begin func()) error {
	t.Helper()
	c.mu.Lock()
	before := len(c.failed)
	c.mu.Unlock()
	begin()
	var err error
	c.until(t, "a failing extension", func() bool {
		if len(c.failed) == before {
			return false
		}
		err = c.failed[before]
		return true
	})
	if errors.Is(err, leaderelection.ErrLostRace) || errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("a fault of the network is told as %v", err)
	}
	return err
}
