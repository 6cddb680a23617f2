//go:build go1.25

package rules

import (
	"sync"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// A view made by NewTimeView can be moved at will, for tests of code that takes
// one.
func TestTimeViewSet(t *testing.T) {
	for name, clock := range map[string]clocks.Clock{"nil": nil, "offset": clocks.NewOffset(nil, time.Hour)} {
		v := viewtest.New(clock, 0)
		if v.ValueInFuture() || !v.Get().IsZero() || v.Clock() == nil || v.ElectionNumber() != le.NoElections {
			t.Errorf("%s: a new view is in force", name)
		}
		soon := v.Clock().Now().Add(time.Hour)
		v.Set(soon)
		if !v.ValueInFuture() || !v.Get().Equal(soon) {
			t.Errorf("%s: Set to the future: %v", name, v.Get())
		}
		v.Set(v.Clock().Now())
		if v.ValueInFuture() {
			t.Errorf("%s: Set to now is still in the future", name)
		}
		v.Set(soon)
		if !v.ValueInFuture() {
			t.Errorf("%s: Set did not move it back", name)
		}
	}
}

// Set takes any time, however far.
func TestTimeViewSetFar(t *testing.T) {
	for at, want := range map[time.Time]bool{
		{}: false, time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC): false, time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC): false,
		time.Unix(0, 0): false, time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC): true, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC): true,
	} {
		v := viewtest.New(nil, 0)
		if v.Set(at); v.ValueInFuture() != want || !v.Get().Equal(at) {
			t.Errorf("set to %v: %v, want %v", v.Get(), !want, want)
		}
	}
}

// It ends at its very nanosecond.
func TestTimeViewEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v := viewtest.New(nil, 0)
		v.Set(time.Now().Add(time.Second))
		time.Sleep(time.Second - 1)
		if !v.ValueInFuture() {
			t.Fatal("ended early")
		}
		time.Sleep(time.Nanosecond)
		if v.ValueInFuture() {
			t.Fatal("alive at its end")
		}
	})
}

// It may be asked and moved by many at once, and asking does not allocate.
func TestTimeViewConcurrency(t *testing.T) {
	v := viewtest.New(nil, 0)
	v.Set(time.Now().Add(time.Hour))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if !v.ValueInFuture() {
					t.Error("over")
					return
				}
				v.Set(time.Now().Add(time.Hour))
			}
		})
	}
	wg.Wait()
	if n := testing.AllocsPerRun(100, func() { v.ValueInFuture() }); n > 0 {
		t.Errorf("%v allocations", n)
	}

}

// A copy of a view ends with it, also one that was made before an extension.
func TestTimeViewCopy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a")
		sleep(time.Second)
		copied := *a.View()
		sleep(2 * T)
		if !copied.ValueInFuture() || !copied.Get().Equal(a.View().Get()) {
			t.Errorf("the copy is valid until %v, and the view until %v", copied.Get(), a.View().Get())
		}
		go a.Resign(t.Context())
		sleep(time.Millisecond)
		if copied.ValueInFuture() {
			t.Error("the copy outlives the leadership")
		}
	})
}

// A zero view, and one that is not there, is over.
func TestTimeViewZero(t *testing.T) {
	for name, v := range map[string]*le.TimeView{"zero": {}, "nil": nil} {
		if v.ValueInFuture() || !v.Get().IsZero() || v.Clock() == nil || v.ElectionNumber() != le.NoElections {
			t.Errorf("%s: the view is in force", name)
		}
	}
}
