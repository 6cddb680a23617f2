//go:build go1.25

package hinted_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/hinted"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is a record of a term of 15 s.
func entry(number, extension uint64) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID: "a", Incarnation: "i", TermExpiry: time.Now().Add(15 * time.Second), TermLength: 15 * time.Second,
		ElectionNumber: leaderelection.ElectionNumber(number), Extension: extension,
	}
}

// silent is a source from which nothing comes.
func silent(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// news is what a feed yields, and when.
type news struct {
	*leaderelection.RaceEntry
	err error
	at  time.Time
}

// follow runs a feed, and returns what it yields; the channel is closed when it has
// ended.
func follow(ctx context.Context, d *hinted.Decider) <-chan news {
	out := make(chan news, 1000)
	go func() {
		defer close(out)
		for e, err := range d.Changes(ctx) {
			out <- news{e, err, time.Now()}
		}
	}()
	return out
}

const (
	oneWay   = 10 * time.Millisecond // from a candidate to the store, and back
	hintTime = 5 * time.Millisecond  // from an announcement to whoever listens
	term     = 15 * time.Second
	skew     = time.Second
)

// network is an election whose store is far away, and whose hints take their time, and
// get lost when a test says so.
type network struct {
	t       *testing.T
	store   *memory.Decider
	signal  hinted.Signal
	lossy   atomic.Bool
	elected chan time.Time
}

// handle is what one process has.
func (n *network) handle() *hinted.Decider {
	m := n.store.Handle()
	m.Inject(memory.Slow(2 * oneWay))
	announce := func(context.Context) {
		if !n.lossy.Load() {
			time.AfterFunc(hintTime, n.signal.Changed)
		}
	}
	return hinted.NewDecider(m.Polled(), n.signal.Hints, &hinted.Options{Announce: announce})
}

// candidate starts one, and returns what ends it.
func (n *network) candidate(id string, d leaderelection.RaceDecider) (leave func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	c, err := leaderelection.Config{
		Decider: d, LeaderID: id, TermLength: term, MaxClockSkew: skew,
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
			n.elected <- time.Now()
			<-ctx.Done()
		},
	}.Start(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return func() {
		cancel()
		_ = c.Wait()
	}
}

// From a leader's leaving to the next OnElected: the release's way to the store, the
// answer, the hint, a read and a write, and perhaps a read that was under way before.
// If the hint of the release is lost, the poll instead.
func TestHandover(t *testing.T) {
	for _, c := range []struct {
		lossy bool
		most  time.Duration
	}{
		{false, 2*oneWay + hintTime + 3*2*oneWay},
		{true, term/2 + 4*2*oneWay},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &network{t: t, store: memory.NewDecider(), elected: make(chan time.Time, 100)}
			leave := n.candidate("0", n.handle())
			<-n.elected
			var longest time.Duration
			for i := range 20 {
				stay := n.candidate(fmt.Sprint(i+1), n.handle())
				time.Sleep(term + time.Duration(i)*time.Second/3)
				n.lossy.Store(c.lossy)
				left := time.Now()
				go leave()
				took := (<-n.elected).Sub(left)
				if took > c.most {
					t.Errorf("hints lost: %v: hand-over took %v, want %v at most", c.lossy, took, c.most)
				}
				longest = max(longest, took)
				n.lossy.Store(false)
				leave = stay
			}
			t.Logf("hints lost: %v: hand-over took %v at most", c.lossy, longest)
			if c.lossy && longest < time.Second {
				t.Error("no hint was lost: nothing was shown")
			}
			leave()
		})
	}
}

// A source that fails is tried again by later feeds, seldom, however often candidates open one; when it
// works again, so does a hint.
func TestSourceFailsAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried, broken := 0, true
		var signal hinted.Signal
		store := memory.NewDecider()
		d := hinted.NewDecider(store.Polled(), func(ctx context.Context, changed func()) error {
			if tried++; broken {
				return errors.New("no subscription")
			}
			return signal.Hints(ctx, changed)
		}, nil)
		for begin := time.Now(); time.Since(begin) < 20*term; time.Sleep(time.Second) {
			for _, err := range d.Changes(t.Context()) {
				if err != nil && !strings.Contains(err.Error(), "no subscription") {
					t.Error(err)
				}
			}
		}
		if tried < 5 || tried > 12 {
			t.Errorf("in 20 terms the source was tried %d times", tried)
		}
		broken = false
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		feed := follow(ctx, d)
		<-feed
		time.Sleep(time.Minute) // until it is tried again
		store.Replace(entry(1, 0))
		signal.Changed()
		written := time.Now()
		if n := <-feed; n.err != nil || n.ElectionNumber != 1 || n.at != written {
			t.Errorf("with the source back the feed yields %+v, %v after the hint", n, n.at.Sub(written))
		}
	})
}

// Whole elections, by seed, with all that may go wrong, and hints that get lost, come
// late or twice, or whose source fails.
func TestSimulation(t *testing.T) {
	const first, seeds = 101, 100
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed=%d", seed+first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := sim.Draw(seed + first)
				p.Feed = true
				if r := sim.Run(p, sim.On(unreliable(p))); len(r.Violations) > 0 {
					t.Error(r)
				}
			})
		})
	}
}

// unreliable is an election with such hints.
func unreliable(p sim.Params) *hinted.Decider {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(p.Seed, 3))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	var signal hinted.Signal
	hints := func(ctx context.Context, changed func()) error {
		if draw(10) == 0 {
			return errors.New("no subscription")
		}
		if draw(4) == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, p.Term*time.Duration(draw(10)+1))
			defer cancel()
		}
		return signal.Hints(ctx, func() {
			for range draw(3) { // lost, once, or twice
				time.AfterFunc(time.Duration(draw(int(p.Term))), changed)
			}
		})
	}
	return hinted.NewDecider(memory.NewDecider().Polled(), hints, &hinted.Options{Announce: func(context.Context) { signal.Changed() }})
}
