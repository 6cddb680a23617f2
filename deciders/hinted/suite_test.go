//go:build go1.25

package hinted_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	elected chan leadership
}

type leadership struct {
	id string
	at time.Time
}

func newNetwork(t *testing.T) *network {
	return &network{t: t, store: memory.NewDecider(), elected: make(chan leadership, 100)}
}

// handle is what one process has.
func (n *network) handle(reads *counting) *hinted.Decider {
	m := n.store.Handle()
	m.Inject(memory.Slow(2 * oneWay))
	reads.RaceDecider = m.Polled()
	announce := func(context.Context) {
		if !n.lossy.Load() {
			time.AfterFunc(hintTime, n.signal.Changed)
		}
	}
	return hinted.NewDecider(reads, n.signal.Hints, &hinted.Options{Announce: announce})
}

// candidate starts one, and returns what ends it.
func (n *network) candidate(id string, d leaderelection.RaceDecider) (leave func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	c, err := leaderelection.Config{
		Decider: d, LeaderID: id, TermLength: term, MaxClockSkew: skew,
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
			n.elected <- leadership{id, time.Now()}
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
			n := newNetwork(t)
			leave := n.candidate("0", n.handle(&counting{}))
			<-n.elected
			var longest time.Duration
			for i := range 20 {
				stay := n.candidate(fmt.Sprint(i+1), n.handle(&counting{}))
				time.Sleep(term + time.Duration(i)*time.Second/3)
				n.lossy.Store(c.lossy)
				left := time.Now()
				go leave()
				took := (<-n.elected).at.Sub(left)
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

// What a leader, a standby and an observer read over a hundred terms: once for each
// write, and next to nothing beside that. With all hints lost it is the polls alone.
func TestReadsOfManyTerms(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			n.lossy.Store(lossy)
			var reads [3]counting
			leave := n.candidate("leader", n.handle(&reads[0]))
			<-n.elected
			stop := n.candidate("standby", n.handle(&reads[1]))
			ctx, cancel := context.WithCancel(t.Context())
			watched := make(chan error)
			go func() {
				watched <- leaderelection.WatchConfig{Decider: n.handle(&reads[2]), MaxClockSkew: skew}.
					Watch(ctx, func(context.Context, leaderelection.RaceEntry) {})
			}()
			time.Sleep(10 * time.Second)
			var before [3]int64
			for i := range reads {
				before[i] = reads[i].reads.Load()
			}
			wrote := n.store.Entry().Extension
			time.Sleep(100 * term)
			writes := int64(n.store.Entry().Extension - wrote)
			for i, who := range []string{"leader", "standby", "observer"} {
				got := reads[i].reads.Load() - before[i]
				t.Logf("hints lost: %v: in 100 terms %d writes, and the %s reads %d times", lossy, writes, who, got)
				if most := max(writes, 200) + 5; got > most {
					t.Errorf("hints lost: %v: the %s reads %d times, want %d at most", lossy, who, got, most)
				}
			}
			cancel()
			if err := <-watched; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			stop()
			leave()
		})
	}
}

// outage is a source of hints that can be broken.
type outage struct {
	hints hinted.Hints
	tried atomic.Int64
	mu    sync.Mutex
	on    chan struct{} // closed: it fails
}

func (o *outage) listen(ctx context.Context, changed func()) error {
	o.tried.Add(1)
	o.mu.Lock()
	broken := o.on
	o.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		defer cancel()
		select {
		case <-broken:
			failed <- errors.New("no subscription")
		case <-ctx.Done():
			failed <- nil
		}
	}()
	_ = o.hints(ctx, changed)
	return <-failed
}

func (o *outage) begin() { close(o.on) }

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.on = make(chan struct{})
}

// While the source of hints fails there are polls; it is tried again, seldom, and then
// hints work as before.
func TestSourceFailsAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		var reads counting
		standby := n.handle(&reads)
		source := &outage{hints: n.signal.Hints}
		source.end()
		leave := n.candidate("a", n.handle(&counting{}))
		<-n.elected
		stop := n.candidate("b", hinted.NewDecider(standby, source.listen, nil))
		time.Sleep(5 * time.Minute)

		source.begin()
		tried, read := source.tried.Load(), reads.reads.Load()
		time.Sleep(20 * term)
		if n := source.tried.Load() - tried; n < 5 || n > 12 {
			t.Errorf("in 20 terms the source was tried %d times", n)
		}
		if n := reads.reads.Load() - read; n > 40+3*12 {
			t.Errorf("in 20 terms without a source of hints there were %d reads", n)
		}
		left := time.Now()
		leave()
		if took := (<-n.elected).at.Sub(left); took > term/2+4*2*oneWay {
			t.Errorf("without a source of hints hand-over took %v", took)
		}

		leave = stop
		stop = n.candidate("c", hinted.NewDecider(n.handle(&counting{}), source.listen, nil))
		time.Sleep(5 * time.Minute)
		source.end()
		time.Sleep(time.Minute + time.Second) // until it is tried again
		left = time.Now()
		go leave()
		if took := (<-n.elected).at.Sub(left); took > 2*oneWay+hintTime+3*2*oneWay {
			t.Errorf("with the source back hand-over took %v", took)
		}
		stop()
		leave()
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
