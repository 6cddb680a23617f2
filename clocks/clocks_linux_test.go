package clocks

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what should happen at once.
const patience = 30 * time.Second

// jump moves the machine's wall clock by a microsecond, as a step, and back again, which
// disturbs nobody (adjtimex(2), ADJ_SETOFFSET; NTP's state is left alone). It needs CAP_SYS_TIME.
func jump(t *testing.T) (allowed bool) {
	t.Helper()
	const adjSetOffset = 0x100
	forth := syscall.Timex{Modes: adjSetOffset, Time: syscall.Timeval{Usec: 1}}
	back := syscall.Timex{Modes: adjSetOffset, Time: syscall.Timeval{Sec: -1, Usec: 999_999}}
	for _, by := range []*syscall.Timex{&forth, &back} {
		switch _, err := syscall.Adjtimex(by); {
		case errors.Is(err, syscall.EPERM):
			return false
		case err != nil:
			t.Fatal(err)
		}
	}
	return true
}

func told(t *testing.T, c chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s was not told", what)
	}
}

// teller subscribes to jumps.
func teller(t *testing.T, clock Clock) (c chan struct{}, stop func()) {
	t.Helper()
	c = make(chan struct{}, 100)
	stop, err := NotifyJump(clock, func() { c <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	return c, stop
}

// The kernel tells of a clock that is set, each time, and all who ask. When nobody does any
// more nothing is left open.
func TestJumps(t *testing.T) {
	a, stopA := teller(t, SystemClock{})
	b, stopB := teller(t, KernelClock{})
	if !jump(t) {
		t.Log("not allowed to set the clock: TestJumpsAreTold and TestTimerIsCancellable show what is left")
		stopA()
		stopB()
		return
	}
	told(t, a, "the first")
	told(t, b, "the second")
	stopA()
	stopA() // once is enough
	drain(b)
	jump(t)
	told(t, b, "who is left")
	stopB()
	if systemJumps.timer != nil {
		t.Error("a timer is left open")
	}
	drain(a)
	drain(b)
	jump(t)
	c, stop := teller(t, SystemClock{}) // again
	defer stop()
	jump(t)
	told(t, c, "who asks again")
	if len(a) > 1 || len(b) > 1 { // one may have been on its way
		t.Errorf("told after the stop: %d, %d", len(a), len(b))
	}
}

func drain(c chan struct{}) {
	for {
		select {
		case <-c:
		case <-time.After(20 * time.Millisecond):
			return
		}
	}
}

// What a timer's file tells reaches all who ask; here the timer is one that expires.
func TestJumpsAreTold(t *testing.T) {
	timer, err := cancelledTimer()
	if err != nil {
		t.Fatal(err)
	}
	j := jumps{timer: timer, asked: make(map[*func()]struct{})}
	first, second := make(chan struct{}, 100), make(chan struct{}, 100)
	var stops []func()
	for _, c := range []chan struct{}{first, second} {
		stop, err := j.add(func() { c <- struct{}{} })
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, stop)
	}
	go j.watch(timer)
	for range 3 { // it is armed again each time, for a year
		expire(t, timer)
		told(t, first, "the first")
		told(t, second, "the second")
	}
	for _, stop := range stops {
		stop()
	}
	if j.timer != nil || timer.Close() == nil {
		t.Error("the timer is left open")
	}
}

// expire has the timer expire now.
func expire(t *testing.T, timer *os.File) {
	t.Helper()
	if err := armAt(timer, time.Now().Add(5*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
}

// Armed, the timer is one that a jump cancels, and it does not expire by itself soon.
func TestTimerIsCancellable(t *testing.T) {
	timer, err := cancelledTimer()
	if err != nil {
		t.Fatal(err)
	}
	defer timer.Close()
	raw, err := timer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info []byte
	if err := raw.Control(func(fd uintptr) { info, err = os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd)) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"clockid: 0\n", "ticks: 0\n", "settime flags: 03\n"} {
		if !strings.Contains(string(info), want) {
			t.Errorf("no %q in\n%s", want, info)
		}
	}
}

func TestBoundOf(t *testing.T) {
	for _, c := range []struct {
		timex syscall.Timex
		want  time.Duration
	}{
		{syscall.Timex{Maxerror: 1500}, 1500 * time.Microsecond},
		{syscall.Timex{Maxerror: 0, Status: 1}, 0},
		{syscall.Timex{Maxerror: 1500, Status: staUnsync}, Unbounded},
		{syscall.Timex{Maxerror: 16_000_000, Status: staUnsync | 1}, Unbounded},
	} {
		if got := boundOf(&c.timex); got != c.want {
			t.Errorf("%+v is %v, want %v", c.timex, got, c.want)
		}
	}
}

// The kernel is asked, or says why it may not be.
func TestKernelBound(t *testing.T) {
	bound, err := Kernel().(Bounded).ErrorBound()
	if err == nil && bound < 0 {
		t.Errorf("bound %v", bound)
	}
	t.Logf("bound %v, %v", bound, err)
}

func BenchmarkKernelBound(b *testing.B) {
	c := KernelClock{}
	for b.Loop() {
		c.ErrorBound()
	}
}
