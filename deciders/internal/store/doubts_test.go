//go:build go1.25

package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// A record is in doubt while a write of its Incarnation is open, until a version is safe
// or a later write was answered.
func TestDoubts(t *testing.T) {
	var d store.Doubts
	about := func(incarnation, version string, want bool) {
		t.Helper()
		if d.About(incarnation, version) != want {
			t.Errorf("about %q at %q: %v", incarnation, version, !want)
		}
	}
	about("a", "1", false)
	first, lost := d.Begin("a")
	about("a", "1", true)
	about("a", "", false)
	about("b", "1", false)
	lost()
	about("a", "1", false)
	lost() // again
	second, _ := d.Begin("a")
	third, lost := d.Begin("a")
	lost()
	about("a", "1", true) // of the second
	d.Settle("1")
	about("a", "1", false)
	about("a", "2", true)
	other, _ := d.Begin("b")
	d.Landed(second, "3")
	about("a", "2", false)
	about("b", "2", true)
	if first >= second || second >= third || third >= other {
		t.Error(first, second, third, other)
	}
}

// A campaign that cannot write, and makes up an Incarnation for each try, fills no memory. What it wrote
// last stays in doubt.
func TestDoubtsForgetTheOldest(t *testing.T) {
	const remembered = 64
	var d store.Doubts
	var r store.Recent
	for i := range 10 * remembered {
		d.Begin(fmt.Sprint(i))
		r.Add(fmt.Sprint(i))
	}
	for i, want := range map[int]bool{9*remembered - 1: false, 9 * remembered: true, 10*remembered - 1: true} {
		if about, has := d.About(fmt.Sprint(i), "v"), r.Has(fmt.Sprint(i)); about != want || has != want {
			t.Errorf("%d: in doubt %t, remembered %t, want %t", i, about, has, want)
		}
	}
}

// waiting is a backend whose answers come late: it hears of the end of a ctx.
type waiting struct {
	*backend
	answer chan struct{}
	late   time.Duration // after the end of a ctx
}

func (w waiting) Load(ctx context.Context) (store.Stored[version], error) {
	select {
	case <-w.answer:
		return w.backend.Load(ctx)
	case <-ctx.Done():
		time.Sleep(w.late)
		return store.Stored[version]{}, ctx.Err()
	}
}

func (w waiting) Swap(ctx context.Context, at version, data []byte, e *leaderelection.RaceEntry) (version, error) {
	select {
	case <-w.answer:
		return w.backend.Swap(ctx, at, data, e)
	case <-ctx.Done():
		time.Sleep(w.late)
		return 0, ctx.Err()
	}
}

// Connections are dropped when a call is given up, a read or a write, even if it returns late. They are not after one that
// ended too soon to say anything about them, nor after one that was answered, well or not.
func TestDrop(t *testing.T) { synctest.Test(t, testDrop) }

func testDrop(t *testing.T) {
	var begun time.Time
	dropped := 0
	w := waiting{backend: &backend{at: 1}, answer: make(chan struct{}), late: time.Minute}
	e := &store.Election[version]{Store: w, Package: "test", Drop: func(since time.Time) {
		if dropped++; time.Since(since) > time.Second {
			t.Errorf("dropped %v after the call began", time.Since(since))
		}
		if !since.Equal(begun) {
			t.Errorf("dropped what was silent since %v, want %v", since, begun)
		}
	}}
	for name, call := range map[string]func(context.Context) error{
		"read":  func(ctx context.Context) error { _, err := e.Read(ctx); return err },
		"write": func(ctx context.Context) error { _, err := e.Write(ctx, entry(2, version(1))); return err },
	} {
		for after, want := range map[time.Duration]int{0: 0, 199 * time.Millisecond: 0, 200 * time.Millisecond: 1} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			dropped, begun = 0, time.Now()
			err := call(ctx)
			cancel()
			if err == nil || dropped != want {
				t.Errorf("%s, given up after %v: %v, dropped %d times, want %d", name, after, err, dropped, want)
			}
		}
	}
	dropped = 0
	answered := time.AfterFunc(time.Second, func() { close(w.answer) })
	defer answered.Stop()
	w.err = errBusy
	if _, err := e.Read(t.Context()); !errors.Is(err, errBusy) || dropped != 0 {
		t.Errorf("answered late: %v, dropped %d times", err, dropped)
	}
}
