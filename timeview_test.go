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
func liveView(clock clocks.Clock) (*TimeView, viewEnd) {
	k := newTimekeeper(clock)
	now := k.now()
	v := newView(k, 1)
	v.begin(viewEnd{wall: now.wall.Add(time.Hour), mono: now.mono + time.Hour})
	return v, viewEnd{wall: now.wall.Add(2 * time.Hour), mono: now.mono + 2*time.Hour}
}

// A view that is over, or is latched while an extension is being confirmed, does not
// come back to life.
func TestLatchAgainstMove(t *testing.T) {
	clock := &during{}
	v, next := liveView(clock)
	clock.do = v.end // between the look at the clock and the move
	if v.move(next) || v.ValueInFuture() || !v.latched() {
		t.Error("moved on though it was latched meanwhile")
	}

	// Its end has come, but nobody has looked yet.
	k := newTimekeeper(clock)
	now := k.now()
	v, next = liveView(clock)
	v.state.Store(&viewState{viewEnd: viewEnd{wall: now.wall.Add(-time.Second), mono: now.mono - time.Second}})
	if v.move(next) || v.ValueInFuture() {
		t.Error("moved on after its end")
	}
}

// However end and move meet, the view is over afterwards.
func TestLatchAgainstEnd(t *testing.T) {
	for range 20_000 {
		v, next := liveView(clocks.System())
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() { <-start; v.move(next) })
		both.Go(func() { <-start; v.end() })
		close(start)
		both.Wait()
		if v.ValueInFuture() {
			t.Fatal("alive after its end")
		}
	}
}
