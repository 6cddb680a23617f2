//go:build go1.25

package shard

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// An observer whose read lags behind what it was told reads again, until a read shows that.
func TestWatchReadsUntilItShows(t *testing.T) {
	for _, polled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			assignment, coordinator := memory.NewDecider(), memory.NewDecider()
			put := func(version leaderelection.ElectionNumber) {
				a := gives(version, 1, placed{0, uint64(version), false})
				a.id = fmt.Sprint(version)
				e, err := a.entry(MaxAssignment)
				if err != nil {
					t.Fatal(err)
				}
				assignment.Replace(e)
				coordinator.Replace(&leaderelection.RaceEntry{
					LeaderID: "a#1", ElectionNumber: 1, Extension: uint64(version), TermLength: T, TermExpiry: time.Now().Add(time.Hour),
					ConnectionParams: fmt.Appendf(nil, `{"form":"coordinator/1","version":%d}`, version),
				})
			}
			var told, reads atomic.Int64
			lagging := &atomic.Bool{}
			lag := &laggard{RaceDecider: assignment.Polled(), lags: lagging}
			w := WatchConfig{PollInterval: T, Store: func(name string) (leaderelection.RaceDecider, error) {
				switch {
				case name == coordinatorName:
					return coordinator.Polled(), nil
				case polled:
					return counted{lag, &reads}, nil
				}
				return &pushing{laggard{RaceDecider: counted{lag, &reads}, lags: &atomic.Bool{}}, assignment}, nil
			}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = w.Watch(ctx, func(_ context.Context, a *Assignment) { told.Store(int64(a.Version())) })
			}()
			put(5)
			time.Sleep(2 * T)
			if told.Load() != 5 {
				t.Fatalf("polled=%v: told of %d", polled, told.Load())
			}
			lagging.Store(true)
			_, _ = lag.ReadCurrent(ctx) // what it shows from now on
			put(6)
			time.Sleep(T + time.Minute)
			if lagging.Store(false); told.Load() != 5 {
				t.Fatalf("polled=%v: told of %d by reads that lag", polled, told.Load())
			}
			time.Sleep(T + time.Millisecond)
			if told.Load() != 6 {
				t.Errorf("polled=%v: told of %d, and reads show 6", polled, told.Load())
			}
			n := reads.Load()
			if time.Sleep(10 * time.Minute); reads.Load() > n+41 { // a vacant record is read every PollInterval by Watch itself
				t.Errorf("polled=%v: %d reads in calm", polled, reads.Load()-n)
			}
			cancel()
			<-done
		})
	}
}

// counted counts reads.
type counted struct {
	leaderelection.RaceDecider
	reads *atomic.Int64
}

func (c counted) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	c.reads.Add(1)
	return c.RaceDecider.ReadCurrent(ctx)
}

// A member whose read lags behind what it was told reads again, too: what moves to it would
// wait for four terms.
func TestMembersReadUntilItShows(t *testing.T) {
	both(t, func(g *group) {
		a := g.join("a")
		b := g.join("b")
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		coordinates, other := a, b
		if e := g.record(coordinatorName).Entry(); memberOf(e.LeaderID) == "b" {
			coordinates, other = b, a
		}
		other.lags.Store(true)
		_, _ = other.member.stores.deciders[assignmentName].ReadCurrent(g.t.Context())
		g.join("c")
		time.Sleep(T)
		other.lags.Store(false)
		time.Sleep(3 * T)
		if n := g.counts(); n[other.id] != 4 || n[coordinates.id] != 4 || n["c"] != 4 {
			t.Errorf("%v three terms after reads show it", n)
		}
	})
}

// Told of a version, a session reads until one as new is shown.
func TestMembersReadUntilItIsAsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		s.hear(5)
		s.again = false
		if read(gives(4, 3, placed{0, 6, false})); !s.again || s.retryAt.IsZero() {
			t.Error("told of 5, it has read 4, and reads no more")
		}
		s.again = false
		if read(gives(5, 3, placed{0, 6, false})); s.again || !s.retryAt.IsZero() {
			t.Error("it reads again though it knows what it was told of")
		}
	})
}

// On a store that must be asked a session looks often while a shard is asked for, and only then.
func TestHurriesWhileShardsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		for version, moves := range []bool{false, true, false} {
			read(gives(leaderelection.ElectionNumber(version+1), 3, placed{0, 6, moves}))
			if s.hurry != moves {
				t.Errorf("moving: %v, and it hurries: %v", moves, s.hurry)
			}
		}
	})
}
