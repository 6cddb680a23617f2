//go:build go1.25

package loop

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
)

// If a call is stuck, the oldest that wait are dropped, and the newest are made, in order.
func TestDropsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := Calls{Limit: 10}
		var made []int
		stuck := make(chan struct{})
		calls.Add(func() { <-stuck })
		synctest.Wait()
		for i := range 13 {
			calls.Add(func() { made = append(made, i) })
		}
		close(stuck)
		synctest.Wait()
		if !slices.Equal(made, []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}) {
			t.Errorf("made %v", made)
		}
	})
}

// A call that ends its goroutine takes no other with it.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made, idle := 0, 0
		calls := Calls{Limit: 10, Idle: func() { idle++ }}
		for range 4 {
			calls.Add(func() { made++; runtime.Goexit() })
		}
		synctest.Wait()
		if made != 4 || idle != 1 || calls.Busy() {
			t.Errorf("%d of 4 made, idle %d times, busy: %v", made, idle, calls.Busy())
		}
	})
}
