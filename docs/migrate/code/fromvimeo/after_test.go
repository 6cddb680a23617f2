package fromvimeo

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// The leader's clients are told of it, and of the vacancy that it leaves behind.
func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewDecider()
		born := leaderelection.ElectionNumber(time.Now().Unix())
		var candidate, observer atomic.Pointer[[]string] // what each was told last
		told := func(where *atomic.Pointer[[]string]) func([]string) {
			return func(hostPorts []string) { where.Store(&hostPorts) }
		}
		watching, stopWatching := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- AfterWatch(watching, store.Handle(), told(&observer)) }()

		worked := make(chan leaderelection.ElectionNumber, 1)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			stopped <- After(ctx, store, "a", []string{"10.0.0.1:8080"}, func(ctx context.Context, view *leaderelection.TimeView) {
				worked <- view.ElectionNumber()
				<-ctx.Done()
			}, told(&candidate))
		}()
		if n := <-worked; n != born {
			t.Errorf("the first leadership is number %d, want the time's, %d", n, born)
		}
		time.Sleep(time.Minute) // virtual: some extensions
		want := []string{"10.0.0.1:8080"}
		if !slices.Equal(*candidate.Load(), want) || !slices.Equal(*observer.Load(), want) {
			t.Errorf("candidate was told %q, observer %q, want %q", *candidate.Load(), *observer.Load(), want)
		}
		cancel()
		<-stopped
		synctest.Wait()
		if len(*candidate.Load())+len(*observer.Load()) != 0 {
			t.Errorf("after the release, candidate was told %q, observer %q: want none", *candidate.Load(), *observer.Load())
		}
		stopWatching()
		<-watched
	})
}

// A leader that vanishes is told of, too: its term runs out.
func TestAfterWatchLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewDecider()
		store.Replace(&leaderelection.RaceEntry{
			LeaderID: "dead", HostPort: []string{"10.0.0.9:8080"}, ElectionNumber: 1, Incarnation: "i",
			TermLength: 15 * time.Second, TermExpiry: time.Now().Add(15 * time.Second),
		})
		var told [][]string
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() {
			watched <- AfterWatch(ctx, store, func(hostPorts []string) { told = append(told, hostPorts) })
		}()
		time.Sleep(time.Minute) // virtual
		cancel()
		<-watched
		if len(told) != 2 || len(told[0]) != 1 || len(told[1]) != 0 {
			t.Errorf("told %q, want the leader and then none", told)
		}
	})
}
