package proc

import (
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// fill stops the guard, and orders signals that do nothing until the pipe takes no more: what is
// ordered now is lost. It reports whether the guard was there to be stopped.
func fill(t *testing.T, p *Process) bool {
	t.Helper()
	_ = p.guard.Signal(syscall.SIGSTOP)
	for state := ""; state != "T"; <-time.After(time.Millisecond) {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(p.guard.Pid) + "/stat")
		if err != nil {
			return false
		}
		_, state, _ = strings.Cut(string(text), ") ")
		state = state[:1]
		if state == "Z" || p.until.Left() < 0 {
			return false
		}
	}
	for range 1 << 13 { // a pipe holds 64 KiB
		p.Signal(syscall.SIGCONT)
	}
	return true
}

// inTime has run do its part with longer and longer lives of a command, until one was long enough
// for this machine.
func inTime(t *testing.T, run func(t *testing.T, life time.Duration) bool) {
	t.Helper()
	for life := 2 * time.Second; !run(t, life); life *= 2 {
		if life > patience {
			t.Fatalf("this machine could not do it within %v", life)
		}
	}
}

// An order to end that does not reach the guard is waited for no longer than the guard may take
// to carry it out: then it is killed, with what it guards. The deadline is far.
func TestLostOrderToEnd(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	const grace = 200 * time.Millisecond
	for name, order := range map[string]func(p *Process){
		"kill":                 func(p *Process) { p.Kill() },
		"stop":                 func(p *Process) { p.Stop(syscall.SIGTERM, grace) },
		"stop, then again":     func(p *Process) { p.Stop(syscall.SIGTERM, grace); p.Stop(syscall.SIGTERM, time.Hour) },
		"kill, then stop":      func(p *Process) { p.Kill(); p.Stop(syscall.SIGTERM, time.Hour) },
		"stop, then kill":      func(p *Process) { p.Stop(syscall.SIGTERM, time.Hour); p.Kill() },
		"kill, then extension": func(p *Process) { p.Kill(); p.Extend(in(2 * time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &lines{}
			p, pids := script(t, func(s *Spec) {
				s.Until, s.Late, s.Logger = in(time.Hour), time.Hour, slog.New(slog.NewTextHandler(log, nil))
			}, stubborn)
			all := noted(t, pids, 2)
			if !fill(t, p) {
				t.Fatal("the guard is gone")
			}
			order(p)
			if s := end(t, p); s.Code != CodeFailed || s.Failure != "its guard was killed" {
				t.Errorf("%+v", s)
			}
			allDead(t, all)
			log.has(t, "the guard does not end the command in time; killing both")
		})
	}
}

// An extension that does not reach the guard does not extend: the guard ends the command by the
// deadline that it knows.
func TestLostExtension(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	inTime(t, func(t *testing.T, life time.Duration) bool {
		p, pids := script(t, func(s *Spec) { s.Until, s.Late = in(life), time.Hour }, stubborn)
		until := p.until
		for len(pids()) < 2 && until.Left() > 0 {
			<-time.After(5 * time.Millisecond)
		}
		all := pids()
		if !fill(t, p) || until.Left() < life/4 || len(all) < 2 {
			p.Kill()
			return false
		}
		p.Extend(in(time.Hour))
		if s := end(t, p); !s.Expired || !s.Killed {
			t.Errorf("%+v", s)
		}
		if left := until.Left(); left > 0 {
			t.Errorf("it ended with %v left", left)
		}
		allDead(t, all)
		return true
	})
}

// The next extension makes up for one that was lost; and orders are taken after the deadline
// that the command had first, as before.
func TestExtensionAfterALostOne(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	const text = `trap "echo -1 >>$NOTES" USR1; trap "echo -2 >>$NOTES" USR2; trap "echo -3 >>$NOTES" HUP; trap "" TERM; echo $$ >>$NOTES; while :; do sleep 0.02; done`
	inTime(t, func(t *testing.T, life time.Duration) bool {
		p, pids := script(t, func(s *Spec) { s.Until, s.Late = in(life), time.Hour }, text)
		first := p.until
		before := func(d Deadline, is func() bool) bool { // reports whether it is, before d
			for !is() && d.Left() > 0 {
				<-time.After(5 * time.Millisecond)
			}
			return d.Left() > 0
		}
		// The guard has obeyed what was ordered before a signal that has come.
		obeyed := func(d Deadline, s syscall.Signal, note int) bool {
			return before(d, func() bool {
				p.Signal(s)
				return slices.Contains(pids(), note)
			})
		}
		late := func() bool { p.Kill(); return false }
		if !before(first, func() bool { return len(pids()) > 0 }) || !fill(t, p) {
			return late()
		}
		all := pids()[:1]
		p.Extend(in(time.Hour)) // is lost
		_ = p.guard.Signal(syscall.SIGCONT)
		if !obeyed(first, syscall.SIGUSR1, -1) {
			return late()
		}
		second := in(first.Left() + life)
		p.Extend(second)
		if !obeyed(first, syscall.SIGUSR2, -2) {
			return late()
		}
		before(first, func() bool { return false })
		p.Extend(in(time.Hour))
		if !obeyed(second, syscall.SIGHUP, -3) && len(alive(all)) > 0 {
			return late()
		}
		before(second.Sub(-500*time.Millisecond), func() bool { return len(alive(all)) == 0 })
		if len(alive(all)) == 0 {
			t.Fatalf("extended twice, it has ended: %+v", p.Status())
		}
		p.Kill()
		if s := end(t, p); !s.Killed || s.Expired || s.Signal != int(syscall.SIGKILL) {
			t.Errorf("%+v", s)
		}
		return true
	})
}
