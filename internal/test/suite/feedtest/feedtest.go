// Package feedtest holds elections on a store that pushes to what a push is for:
// a leader's release is answered by a new leader within milliseconds (Handover),
// those who wait ask the store nothing (Idle), news comes late at most by the poll
// interval when the feed is in trouble (News), and an outage ends a leadership no sooner
// than it must (Outage, Faults). It is for the tests of deciders; decidertest holds the
// store itself to its contract. The verbs (Write, Permanent, Foreign and others) are for
// deciders without a feed, too.
package feedtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// NewElection makes a fresh election and returns what makes handles on it, each
// with a client of its own: as for decidertest.Run.
type NewElection = func(t testing.TB) func() leaderelection.RaceDecider

// patience is how long to wait for what must come.
const patience = 30 * time.Second

// candidate is a campaign that a test drives.
type candidate struct {
	*leaderelection.Campaign
	id     string
	leave  context.CancelFunc
	feedUp chan struct{} // closed when its feed has delivered

	mu     sync.Mutex
	ops    map[leaderelection.OpKind]int
	failed []error // extensions, and why
}

// leadership is what OnElected is told, and when.
type leadership struct {
	id   string
	at   time.Time
	ctx  context.Context
	view *leaderelection.TimeView
}

// start starts a campaign; its leaderships are sent to elected. It ends with the test
// at the latest.
func start(t testing.TB, cfg leaderelection.Config, elected chan<- leadership) *candidate {
	t.Helper()
	c := &candidate{id: cfg.LeaderID, feedUp: make(chan struct{}), ops: map[leaderelection.OpKind]int{}}
	var once sync.Once
	cfg.OnElected = func(ctx context.Context, view *leaderelection.TimeView) {
		select {
		case elected <- leadership{c.id, time.Now(), ctx, view}:
		case <-ctx.Done():
		}
		<-ctx.Done()
	}
	cfg.Trace = &leaderelection.Trace{
		Feed: func(f leaderelection.FeedEvent) {
			if f.Err == nil {
				once.Do(func() { close(c.feedUp) })
			} else {
				t.Logf("%s: %v", c.id, f.Err)
			}
		},
		StoreOp: func(op leaderelection.StoreOp) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ops[op.Kind]++
			if op.Kind == leaderelection.OpExtend && op.Err != nil {
				c.failed = append(c.failed, op.Err)
			}
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	campaign, err := cfg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.Campaign, c.leave = campaign, cancel
	t.Cleanup(func() {
		cancel()
		_ = campaign.Wait()
	})
	return c
}

// count is how many store calls of these kinds it has made.
func (c *candidate) count(kinds ...leaderelection.OpKind) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range kinds {
		n += c.ops[k]
	}
	return n
}

// failures are the errors of its extensions.
func (c *candidate) failures() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.failed)
}

// await returns what comes next on a channel.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case v := <-c:
		return v
	case <-timeout.C:
		t.Fatalf("%s: not within %v", what, patience)
	}
	panic("unreachable")
}

// Eventually looks again and again until ok.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	until(t, what, patience, ok)
}

// until is Eventually with another patience.
func until(t testing.TB, what string, within time.Duration, ok func() bool) {
	t.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-timeout.C:
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}

// median is the middle of what was measured.
func median(ds []time.Duration) time.Duration {
	ds = slices.Sorted(slices.Values(ds))
	return ds[len(ds)/2]
}

// record is a held record, of a term that does not run out under the test.
func record(number uint64) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID: fmt.Sprint("leader-", number), Incarnation: fmt.Sprint("incarnation-", number),
		TermExpiry: time.Now().Add(time.Hour), TermLength: time.Hour,
		ElectionNumber: leaderelection.ElectionNumber(number),
	}
}
