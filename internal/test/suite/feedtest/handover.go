package feedtest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

const (
	rounds = 50
	// ceiling is what no median may be above.
	ceiling = 50 * time.Millisecond
	// tries is how often it is measured before a slow median counts: the
	// machine may have been busy with something else.
	tries = 3
)

// Handover measures the time from a leader's leaving to OnElected in another
// candidate that waits, and fails t where the median of 50 is above three times the
// store's own time from a write to its notification, plus one write, all measured in
// the same run, by turns; or above 50 ms.
func Handover(t *testing.T, newElection NewElection) {
	t.Helper()
	stores.Nightly(t, "it measures hand-overs")
	for try := 1; ; try++ {
		write, notify, got := measure(t, newElection)
		bound := min(3*notify+write, ceiling)
		t.Logf("median of %d: write %v, write to notification %v, release to OnElected %v (may be %v)", rounds, write, notify, got, bound)
		if got <= bound {
			return
		}
		if try == tries {
			t.Fatalf("release to OnElected takes %v, and may take %v", got, bound)
		}
	}
}

// measure returns the medians of what the store itself takes to write and to notify, and
// of what a hand-over takes. They are taken by turns, so that whatever else the machine
// does meets each.
func measure(t *testing.T, newElection NewElection) (write, notify, handover time.Duration) {
	store := newBaseline(t, newElection)
	handles := &scope{TB: t}
	handle := newElection(handles)
	handles.detach() // the election's own, at the test's end
	elected := make(chan leadership, 1)
	// Each candidate has a client of its own that has not written before, as a standby's.
	begin := func(i int) (c *candidate, end func()) {
		d := handle()
		closeHandle := handles.detach()
		c = start(t, leaderelection.Config{Decider: d, LeaderID: fmt.Sprint("candidate ", i), TermLength: time.Minute}, elected)
		return c, func() {
			c.leave()
			_ = c.Wait()
			closeHandle()
		}
	}
	leader, end := begin(0)
	await(t, "the first leadership", elected)
	var took []time.Duration
	for i := range rounds {
		standby, standbysEnd := begin(i + 1)
		await(t, "the standby's feed", standby.feedUp)
		store.round()
		left := time.Now()
		leader.leave()
		took = append(took, await(t, "the next leadership", elected).at.Sub(left))
		end()
		leader, end = standby, standbysEnd
	}
	end()
	return median(store.writes), median(store.notifications), median(took)
}

// scope is a testing.TB whose clean-ups can be run earlier than at the test's end.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// detach returns what runs the clean-ups asked for since the last detach. It runs at
// the test's end at the latest, and once.
func (s *scope) detach() func() {
	mine := s.cleanups
	s.cleanups = nil
	run := sync.OnceFunc(func() {
		for _, f := range slices.Backward(mine) {
			f()
		}
	})
	s.TB.Cleanup(run)
	return run
}

// baseline measures the store itself.
type baseline struct {
	t                     *testing.T
	writer                leaderelection.RaceDecider
	news                  chan *leaderelection.RaceEntry
	last                  *leaderelection.RaceEntry
	writes, notifications []time.Duration
}

func newBaseline(t *testing.T, newElection NewElection) *baseline {
	handle := newElection(t)
	b := &baseline{t: t, writer: handle(), news: make(chan *leaderelection.RaceEntry, 1)}
	follower := handle()
	go func() {
		defer close(b.news)
		for e, err := range follower.(leaderelection.ChangeFeed).Changes(t.Context()) {
			if err != nil {
				t.Errorf("the feed failed: %v", err)
				return
			}
			b.news <- e
		}
	}()
	b.last = await(t, "the feed's first entry", b.news)
	return b
}

// round is one write, and its notification.
func (b *baseline) round() {
	next := record(uint64(b.last.ElectionNumber) + 1)
	next.Token = b.last.Token
	begin := time.Now()
	if _, err := b.writer.WriteEntry(b.t.Context(), next); err != nil {
		b.t.Fatal(err)
	}
	b.writes = append(b.writes, time.Since(begin))
	for b.last = nil; b.last == nil || b.last.Compare(next) < 0; {
		b.last = await(b.t, "the news of a write", b.news)
	}
	b.notifications = append(b.notifications, time.Since(begin))
}
