//go:build go1.25

package loop

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
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

// stepped is the system's clock under another name: a Mailbox then sleeps by it.
type stepped struct{ clocks.SystemClock }

// A sleep ends when its time has come, or when something is posted, on either kind of clock.
func TestMailbox(t *testing.T) {
	for name, clock := range map[string]clocks.Clock{"the system's clock": nil, "another": stepped{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := Mailbox[int]{Clock: clock}
				defer m.Close()
				for range 2 {
					begin := time.Now()
					if !m.Sleep(time.Second, nil) || time.Since(begin) != time.Second {
						t.Fatalf("it slept for %v, want a second", time.Since(begin))
					}
					m.Post(1)
					if m.Sleep(time.Second, nil) || time.Since(begin) != time.Second {
						t.Fatal("it sleeps though something is there")
					}
					m.Post(2)
					if got := m.Take(); !slices.Equal(got, []int{1, 2}) {
						t.Fatalf("took %v", got)
					}
					go func() { time.Sleep(time.Second); m.Post(3); m.Post(4) }()
					if begin = time.Now(); m.Sleep(time.Hour, nil) || time.Since(begin) != time.Second {
						t.Fatalf("it was not woken: it slept for %v", time.Since(begin))
					}
					if got := m.Take(); !slices.Equal(got, []int{3, 4}) {
						t.Fatalf("took %v", got)
					}
				}
			})
		})
	}
}

// A timer that was set too late is not waited for.
func TestMailboxLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Mailbox[int]
		defer m.Close()
		begin := time.Now()
		if !m.Sleep(time.Hour, func() bool { return true }) || time.Since(begin) != 0 {
			t.Errorf("it slept for %v", time.Since(begin))
		}
		if !m.Sleep(time.Second, func() bool { return false }) || time.Since(begin) != time.Second {
			t.Errorf("it slept for %v", time.Since(begin))
		}
		m.Post(1)
		if m.Sleep(time.Second, func() bool { return true }) {
			t.Error("it sleeps though something is there")
		}
	})
}
