//go:build go1.25

package leaderelection

import (
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// during is a clock that does something while it is read.
type during struct {
	clocks.SystemClock
	do func()
}

func (d *during) Now() time.Time {
	now := time.Now()
	if do := d.do; do != nil {
		d.do = nil
		do()
	}
	return now
}

// liveView returns a campaign's view that ends in an hour, and the state with which an
// extension would move it on by another.
func liveView(clock clocks.Clock) (*TimeView, *viewState) {
	k := newTimekeeper(clock)
	now := k.now()
	v := newView(k, 1)
	v.begin(endAfter(now, time.Hour, now.wall.Add(time.Hour)))
	return v, endAfter(now, 2*time.Hour, now.wall.Add(2*time.Hour))
}

// A view that is over, or is latched while an extension is being confirmed, does not
// come back to life.
func TestLatchAgainstMoveOn(t *testing.T) {
	clock := &during{}
	v, next := liveView(clock)
	clock.do = v.end // between the look at the clock and the move
	if v.moveOn(next) || v.ValueInFuture() || !v.latched() {
		t.Error("moved on though it was latched meanwhile")
	}

	// Its end has come, but nobody has looked yet.
	k := newTimekeeper(clock)
	now := k.now()
	v, next = liveView(clock)
	v.begin(endAfter(now, -time.Second, now.wall.Add(-time.Second)))
	if v.moveOn(next) || v.ValueInFuture() {
		t.Error("moved on after its end")
	}
}

// However end and moveOn meet, the view is over afterwards.
func TestLatchAgainstEnd(t *testing.T) {
	for range 20_000 {
		v, next := liveView(clocks.System())
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() { <-start; v.moveOn(next) })
		both.Go(func() { <-start; v.end() })
		close(start)
		both.Wait()
		if v.ValueInFuture() {
			t.Fatal("alive after its end")
		}
	}
}
