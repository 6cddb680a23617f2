package feedtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// Abandons has swallow let the connections of a decider die without a word, the idle ones of its pool
// included, and gives up a call on one of them, as campaigns do. It fails the test if no next call is
// answered in time, even if the one that was given up has not returned yet.
func Abandons(t testing.TB, d leaderelection.RaceDecider, swallow func()) {
	t.Helper()
	stores.Nightly(t, "gives calls up by the wall clock")
	Read(t, d)
	Fill(t, d)
	cancel, ended := givesUp(t, d, swallow)
	cancel()
	select {
	case <-ended:
	case <-time.After(abandonAfter / 2): // some clients know no end of a ctx
	}
	next, cancel := context.WithTimeout(t.Context(), nextWithin)
	defer cancel()
	for {
		_, err := d.ReadCurrent(next)
		switch {
		case err == nil:
			return
		case next.Err() != nil:
			t.Fatalf("ReadCurrent after one that was given up: %v; a new connection would have worked", err)
		}
		time.Sleep(abandonAfter / 2) // it failed at once, as a campaign's next read need not
	}
}

// givesUp begins a read whose connection has died, and returns when it is time to give it up.
func givesUp(t testing.TB, d leaderelection.RaceDecider, swallow func()) (context.CancelFunc, <-chan error) {
	t.Helper()
	for range 5 {
		swallow()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := d.ReadCurrent(ctx)
			ended <- err
		}()
		giveUp := time.NewTimer(abandonAfter)
		select {
		case err := <-ended:
			giveUp.Stop()
			if err != nil {
				t.Logf("ReadCurrent has failed by itself: %v", err)
				ended <- err
				return cancel, ended
			}
			cancel() // Fill had begun to make its connection, which came to be after all had died
		case <-giveUp.C:
			return cancel, ended
		}
	}
	t.Fatal("ReadCurrent was answered: its connection has not died")
	return nil, nil
}

// Fill reads the record many times at once, so that the pool of a decider has several connections.
func Fill(t testing.TB, d leaderelection.RaceDecider) {
	t.Helper()
	var readers sync.WaitGroup
	for range 16 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for range 20 {
				if _, err := d.ReadCurrent(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	readers.Wait()
}

// A campaign with a term of 2 s gives calls up after half a second. The next call has time to
// connect, and less than the pings of clients take: 13 s and more.
const abandonAfter, nextWithin = 500 * time.Millisecond, 5 * time.Second
