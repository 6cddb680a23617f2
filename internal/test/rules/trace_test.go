//go:build go1.25

package rules

import (
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// Whoever hears that a leadership has begun has heard of its record and of its view: metrics
// would say otherwise that nobody leads.
func TestTraceTellsOfTheViewBeforeTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []string
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.Trace = &le.Trace{
				News:          func(e le.RaceEntry) { told = append(told, "news of "+e.LeaderID) },
				Extended:      func(e le.ViewExtended) { told = append(told, "view") },
				StatusChanged: func(s le.StatusChange) { told = append(told, s.To.String()) },
			}
		})
		synctest.Wait()
		a.quit()
		synctest.Wait()
		want := []string{"news of ", "news of a", "view", "leading", "draining"}
		if len(told) < len(want) || !slices.Equal(told[:len(want)], want) {
			t.Errorf("told %q, want %q first", told, want)
		}
	})
}

// Every hook of every Trace is called, in their order, also those that were added later; what is
// joined does not depend on who comes first.
func TestJoinTraces(t *testing.T) {
	var called []int
	trace := func(n int, without int) *le.Trace {
		made := &le.Trace{}
		hooks := reflect.ValueOf(made).Elem()
		for i := range hooks.NumField() {
			if i != without {
				hooks.Field(i).Set(reflect.MakeFunc(hooks.Field(i).Type(), func([]reflect.Value) []reflect.Value { called = append(called, n); return nil }))
			}
		}
		return made
	}
	for without := range reflect.TypeFor[le.Trace]().NumField() {
		all := reflect.ValueOf(le.JoinTraces(nil, trace(1, -1), &le.Trace{}, trace(2, without), nil, trace(3, -1))).Elem()
		for i := range all.NumField() {
			called = nil
			want := []int{1, 2, 3}
			if i == without {
				want = []int{1, 3}
			}
			if all.Field(i).Call([]reflect.Value{reflect.Zero(all.Field(i).Type().In(0))}); !slices.Equal(called, want) {
				t.Errorf("%s calls %v, want %v", all.Type().Field(i).Name, called, want)
			}
		}
	}
	if none := le.JoinTraces(nil, nil); none == nil || none.News != nil {
		t.Errorf("of none: %+v", none)
	}
}

// In a ctx of no leadership there is a view, which is over, and which nobody can set.
func TestViewFrom(t *testing.T) {
	view := viewtest.New(nil, 7)
	if got := le.ViewFrom(le.WithView(t.Context(), view.TimeView)); got != view.TimeView {
		t.Error("another view")
	}
	for _, none := range []*le.TimeView{le.ViewFrom(t.Context()), le.ViewFrom(le.WithView(t.Context(), nil))} {
		if none.ValueInFuture() || none.ElectionNumber() != le.NoElections || none.Clock() == nil {
			t.Errorf("number %d, %v", none.ElectionNumber(), none.ValueInFuture())
		}
	}
}
