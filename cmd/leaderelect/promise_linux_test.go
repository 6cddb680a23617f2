package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/fleet"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

var (
	rounds = flag.Int("rounds", 8, "how many faults TestPromise makes, in all")
	seed   = flag.Uint64("seed", 0, "what TestPromise decides by; 0: a new one")
)

// The promise of run: two commands never run as leader at once, whatever is
// killed, stopped or cut off. Three candidates campaign an election; again and
// again something is done to the one that leads, until another does, and
// everything that any command did is in one ledger. Every other election is one in
// which no clocks are compared. 100 faults:
//
//	go test -run TestPromise ./cmd/leaderelect -rounds 100
func TestPromise(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	server := stores.NATS(t)
	const elections = 4
	for i := range elections {
		n := (*rounds + i) / elections
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := *seed
			if s == 0 {
				s = rand.Uint64()
			}
			a := newArena(t, server, rand.New(rand.NewPCG(s, uint64(i))), [...]string{"synchronized", "unsynchronized"}[i%2])
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("to do the same again: -seed %d", s)
				}
			})
			for round := range n {
				a.round(t, round)
			}
			a.finish(t)
		})
	}
}

// arena is one election of the promise.
type arena struct {
	ledger string
	rand   *rand.Rand
	slots  [3]*slot
	seen   int    // lines of the ledger that there were when the last round began
	number uint64 // of the leadership that it began with
	clocks string // of all candidates
}

// slot is one candidate, and its successors.
type slot struct {
	*candidate
	id    string
	proxy *stores.Relay
	url   string
	below bool // its command has a grandchild
}

func newArena(t *testing.T, server *stores.NATSServer, r *rand.Rand, clocks string) *arena {
	a := &arena{ledger: filepath.Join(t.TempDir(), "ledger"), rand: r, clocks: clocks}
	for i := range a.slots {
		s := &slot{id: fmt.Sprintf("c%d", i), proxy: stores.NewRelay(t, server.Addr)}
		s.url = fmt.Sprintf("nats://%s/promise/%s?create=true&storage=memory", s.proxy.Addr, strings.ReplaceAll(t.Name(), "/", "-"))
		a.slots[i] = s
		a.start(t, s)
	}
	return a
}

// start starts a candidate, whose command may be one that ignores SIGTERM, or one
// that has a grandchild in a session of its own.
func (a *arena) start(t *testing.T, s *slot) {
	command := []string{"child"}
	if a.rand.IntN(2) == 0 {
		command = append(command, "stubborn")
	}
	if s.below = a.rand.IntN(2) == 0; s.below {
		command = append(command, "escapes")
	}
	args := []string{"run", "--id", s.id, "--term", "2s", "--skew", "200ms", "--restart-delay", "20ms", "--clocks", a.clocks, s.url, "--"}
	s.candidate = launchAt(t, a.ledger, true, nil, append(args, command...)...)
}

// children are the processes that pid has started.
func children(pid int) (all []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread)
		for _, f := range strings.Fields(string(text)) {
			if id, err := strconv.Atoi(f); err == nil {
				all = append(all, id)
			}
		}
	}
	return all
}

// leader waits until a command beats that has started since the last round began, and returns its
// candidate, its process, and how many lines there are. It may be of the same leadership: a candidate that was stopped goes
// on when its guard is dead, and where the view is not over yet it leads on.
func (a *arena) leader(t *testing.T) (found *slot, last line, lines int) {
	t.Helper()
	if !eventually(func() bool {
		all := readLedger(t, a.ledger)
		must(t, overlap(all))
		if len(all) == 0 {
			return false
		}
		last = all[len(all)-1]
		if last.what != "beat" || !slices.ContainsFunc(all[a.seen:], func(l line) bool { return l.pid == last.pid && l.what == "start" }) {
			return false
		}
		for _, s := range a.slots {
			for _, guard := range children(s.Process.Pid) {
				for _, pid := range children(guard) {
					if found = s; pid == last.pid {
						lines = len(all)
						return true
					}
				}
			}
		}
		return false
	}) {
		t.Fatalf("no other command runs after one with token %d, within %v", a.number, patience)
	}
	return found, last, lines
}

// round does something to the leader, and waits until another command runs.
func (a *arena) round(t *testing.T, round int) {
	s, l, lines := a.leader(t)
	guard := 0
	if g := children(s.Process.Pid); len(g) > 0 {
		guard = g[0]
	}
	faults := []struct {
		name string
		do   func()
	}{
		{"kill the candidate", func() { s.signal(syscall.SIGKILL) }},
		{"stop the candidate", func() { s.signal(syscall.SIGSTOP) }},
		{"stop the guard and the candidate", func() { _ = syscall.Kill(guard, syscall.SIGSTOP); s.signal(syscall.SIGSTOP) }},
		{"stop the candidate, kill its guard, and cut it off", func() { // it goes on, and would lead further
			s.signal(syscall.SIGSTOP)
			s.proxy.Cut()
			_ = syscall.Kill(guard, syscall.SIGKILL)
		}},
		{"cut it off", func() { s.proxy.Cut() }},
		{"kill the candidate and its guard", func() {
			// The kernel kills the command then, but nobody what that has
			// started: the one thing that run does not promise.
			if !s.below {
				_ = syscall.Kill(guard, syscall.SIGKILL)
			}
			s.signal(syscall.SIGKILL)
		}},
		{"kill the guard, and ask the candidate to end", func() { _ = syscall.Kill(guard, syscall.SIGKILL); s.signal(syscall.SIGTERM) }},
		{"stop the guard, and ask the candidate to end", func() { _ = syscall.Kill(guard, syscall.SIGSTOP); s.signal(syscall.SIGTERM) }},
		{"ask it to end", func() { s.signal(syscall.SIGTERM) }},
		{"ask it to end, and cut it off", func() { s.signal(syscall.SIGTERM); s.proxy.Cut() }},
		{"stop the guard, and cut it off", func() { _ = syscall.Kill(guard, syscall.SIGSTOP); s.proxy.Cut() }},
		{"stop the command, and then the candidate", func() { _ = syscall.Kill(-l.pid, syscall.SIGSTOP); s.signal(syscall.SIGSTOP) }},
		{"kill the command, and stop the candidate", func() { _ = syscall.Kill(l.pid, syscall.SIGKILL); s.signal(syscall.SIGSTOP) }},
	}
	f := faults[a.rand.IntN(len(faults))]
	t.Logf("round %d: token %d, %s: %s", round, l.token, s.id, f.name)
	a.seen, a.number = lines, l.token
	f.do()
	a.leader(t)
	s.proxy.Heal()
	s.signal(syscall.SIGCONT)
	select {
	case <-s.ended:
		a.start(t, s)
	default:
		if a.rand.IntN(2) == 0 { // else it goes on, as one that was stopped or cut off
			s.kill()
			a.start(t, s)
		}
	}
}

// finish ends all candidates, and reads the ledger a last time.
func (a *arena) finish(t *testing.T) {
	for _, s := range a.slots {
		s.kill()
	}
	all := readLedger(t, a.ledger)
	must(t, overlap(all))
	a.slots[0].allDead(t) // those of its ledger, which is everybody's
	t.Logf("%d leaderships, %d lines", a.number, len(all))
}

// line is what a child has written.
type line struct {
	what  string
	token uint64
	pid   int
	at    time.Time
}

func readLedger(t testing.TB, path string) []line {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []line
	for s := range strings.Lines(string(text)) {
		if !strings.HasSuffix(s, "\n") {
			break // being written
		}
		f := strings.Fields(s)
		if len(f) != 4 {
			t.Fatalf("%s: a line that no child writes: %q", path, s)
		}
		token, err1 := strconv.ParseUint(f[1], 10, 64)
		pid, err2 := strconv.Atoi(f[2])
		at, err3 := strconv.ParseInt(f[3], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatalf("%s: a line that no child writes: %q", path, s)
		}
		all = append(all, line{f[0], token, pid, time.Unix(0, at)})
	}
	return all
}

// overlap says if two commands ran as leader at once. The file's order is that of the writes: no line was written
// before the one before it was begun.
func overlap(all []line) error {
	acts := make([]fleet.Act, len(all))
	now := int64(0)
	for i, l := range all {
		now = max(now+1, l.at.UnixNano())
		acts[i] = fleet.Act{Token: l.token, Before: now, After: now}
	}
	if _, wrong := fleet.Judge(acts); wrong != nil {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// Lines are acts, in the order of the file.
func TestOverlapIsFound(t *testing.T) {
	at := time.Unix(9, 0)
	good := []line{{"start", 1, 10, at}, {"beat", 1, 10, at}, {"start", 2, 11, at}, {"beat", 2, 11, at}}
	if err := overlap(good); err != nil {
		t.Error(err)
	}
	for _, late := range []time.Time{at, time.Unix(8, 0)} {
		if overlap(append(good, line{"beat", 1, 10, late})) == nil {
			t.Error("a beat with token 1 after the start of token 2 is not found")
		}
	}
}
