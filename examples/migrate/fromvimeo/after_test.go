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
		var told atomic.Pointer[[]string]
		worked := make(chan leaderelection.ElectionNumber, 1)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			stopped <- After(ctx, store, "a", []string{"10.0.0.1:8080"}, func(ctx context.Context, view *leaderelection.TimeView) {
				worked <- view.ElectionNumber()
				<-ctx.Done()
			}, func(hostPorts []string) { told.Store(&hostPorts) })
		}()
		if n := <-worked; n != born {
			t.Errorf("the first leadership is number %d, want the time's, %d", n, born)
		}
		time.Sleep(time.Minute) // virtual: some extensions
		if want := []string{"10.0.0.1:8080"}; !slices.Equal(*told.Load(), want) {
			t.Errorf("told %q, want %q", *told.Load(), want)
		}
		cancel()
		<-stopped
		synctest.Wait()
		if len(*told.Load()) != 0 {
			t.Errorf("told %q after the release, want none", *told.Load())
		}
	})
}
