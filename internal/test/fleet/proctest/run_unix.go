//go:build unix

package proctest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/fleet"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// candidacies are the processes that a test has started.
type candidacies struct {
	*fleet.Journal[line]
	all []*fleet.Process
}

// gone is in the journal alone: the process has ended, however that was.
const gone kind = "gone"

func newCandidacies() *candidacies {
	return &candidacies{Journal: fleet.NewJournal(func(text string, ended bool) (l line) {
		if ended {
			return line{Kind: gone}
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return line{Kind: failed, Why: fmt.Sprintf("it printed %q; does TestMain call proctest.Main first?", text)}
		}
		return l
	})}
}

// start starts this test binary again as a candidate, which reaches the store through proxy, if there is one.
func (c *candidacies) start(t testing.TB, name string, r role, env []string, upstream string, proxy *stores.Relay) *fleet.Process {
	t.Helper()
	if proxy != nil {
		address := strings.ReplaceAll(r.Address, upstream, proxy.Addr)
		if address == r.Address {
			t.Fatalf("proctest: Upstream %q is not in the Address %q", upstream, address)
		}
		r.Address = address
	}
	exe, err1 := os.Executable()
	told, err2 := json.Marshal(r)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^$") // no test if TestMain does not call Main
	cmd.Env = append(append(cmd.Environ(), env...), roleEnv+"="+string(told))
	p, err := c.Start(t, name, cmd)
	if err != nil {
		t.Fatalf("proctest: %v", err)
	}
	c.all = append(c.all, p)
	return p
}

// leave asks a process to end, and awaits that, which is to be in order.
func (c *candidacies) leave(t testing.TB, p *fleet.Process, patience time.Duration) {
	t.Helper()
	p.Leave()
	if !c.Await(patience, func(lines map[string][]line) bool { return has(lines[p.Name], gone) }) {
		t.Fatalf("proctest: %s has not ended within %v", p.Name, patience)
	}
	c.Look(func(lines map[string][]line) {
		if !has(lines[p.Name], stopped) {
			t.Errorf("%s was asked to leave, and did not end in order: %+v", p.Name, lines[p.Name])
		}
	})
}

// relays are so many ways to the store, if there is an upstream; else each is nil.
func relays(t testing.TB, upstream string, n int) []*stores.Relay {
	t.Helper()
	all := make([]*stores.Relay, n)
	for i := range all {
		if upstream != "" {
			all[i] = stores.NewRelay(t, upstream)
		}
	}
	return all
}

// logs shows what the processes said.
func (c *candidacies) logs(t testing.TB) {
	t.Helper()
	for _, p := range c.all {
		t.Logf("process %s:\n%s", p.Name, p.Stderr())
	}
}

func signal(t testing.TB, p *fleet.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatalf("proctest: %v to %s: %v", s, p.Name, err)
	}
}

// candidates is how many campaign at any time.
const candidates = 3

// Run runs the election, and fails t where a promise was broken. It takes five to
// ten terms.
func Run(t *testing.T, o Options) {
	t.Helper()
	stores.Nightly(t, "real processes elect by the wall clock")
	o.patience = cmp.Or(o.patience, 30*time.Second)
	r := &run{TB: t, o: o, candidacies: newCandidacies(), proxies: relays(t, o.Upstream, candidates)}
	defer r.check() // also where the test ends half way
	for slot := range candidates {
		r.start(slot)
	}
	r.leaderAfter(leadershipOf{})
	r.killed()
	r.pausedPastItsTerm()
	if o.Upstream != "" {
		r.cutOff()
	}
	r.leavesInOrder()
	for _, p := range r.running {
		if !p.Leaving {
			r.leave(t, p, o.patience)
		}
	}
}

type run struct {
	testing.TB
	*candidacies
	o       Options
	proxies []*stores.Relay // if there is an Upstream
	running [candidates]*fleet.Process
}

// leadershipOf is a leadership that some process is in.
type leadershipOf struct {
	*fleet.Process
	slot   int
	number uint64
}

// start starts the candidate of a slot, for the first time or again.
func (r *run) start(slot int) {
	r.Helper()
	id := fmt.Sprint("candidate-", slot)
	r.running[slot] = r.candidacies.start(r, fmt.Sprintf("%d (%s)", len(r.all)+1, id), role{
		ID: id, Address: r.o.Address, Offset: time.Duration(slot-1) * skew / 2, // no two more than skew apart, as the bound assumes
	}, r.o.Env, r.o.Upstream, r.proxies[slot])
}

// await waits until the journal is as wanted.
func (r *run) await(what string, wanted func(lines map[string][]line) bool) {
	r.Helper()
	failure := fmt.Sprintf("not within %v", r.o.patience)
	ok := false
	r.Await(r.o.patience, func(lines map[string][]line) (over bool) {
		if ok = wanted(lines); ok {
			return true
		}
		for _, p := range r.running {
			if p == nil || p.Leaving {
				continue
			}
			for _, l := range lines[p.Name] {
				if l.Kind == failed || l.Kind == gone || l.Kind == stopped {
					failure = fmt.Sprintf("process %s has ended: %s %s", p.Name, l.Kind, l.Why)
					return true
				}
			}
		}
		return false
	})
	if !ok {
		r.Fatalf("proctest: waiting for %s: %s", what, failure)
	}
}

func has(lines []line, k kind) bool {
	return slices.ContainsFunc(lines, func(l line) bool { return l.Kind == k })
}

// leaderAfter waits for a leadership later than before, and returns it with the time
// of its first act.
func (r *run) leaderAfter(before leadershipOf) (leader leadershipOf, since time.Time) {
	r.Helper()
	r.await(fmt.Sprintf("a leader after leadership %d", before.number), func(lines map[string][]line) bool {
		for slot, p := range r.running {
			if p == nil || p == before.Process {
				continue
			}
			for _, l := range lines[p.Name] {
				if l.Kind == act && l.Number > before.number && (leader.Process == nil || l.Number < leader.number) {
					leader, since = leadershipOf{p, slot, l.Number}, time.Unix(0, l.Before)
				}
			}
		}
		return leader.Process != nil
	})
	return leader, since
}

// writeOver is for how long a leader acts on until the write that extended its view
// is over for sure: its feed may have told it of that before the write returned.
const writeOver = 100 * time.Millisecond

// extended waits until the leader's view has been moved on just now, the moment after
// which the others have to wait longest, and the leader has acted for a time since. It
// returns who leads then, which a busy machine may have changed: where an extension
// hangs for half a term, a leadership ends.
func (r *run) extended(since time.Duration) (leader leadershipOf) {
	r.Helper()
	look := func(lines map[string][]line) (leader leadershipOf, last line) {
		for slot, p := range r.running {
			for _, l := range slices.Backward(lines[p.Name]) {
				if l.Kind != act {
					continue
				}
				if l.Number > leader.number {
					leader, last = leadershipOf{p, slot, l.Number}, l
				}
				break
			}
		}
		return leader, last
	}
	var last line
	var moved int64 // when
	r.Look(func(lines map[string][]line) { leader, last = look(lines) })
	r.await("an extension by a leader", func(lines map[string][]line) bool {
		before := last
		leader, last = look(lines)
		switch {
		case last.Number != before.Number:
			moved = 0
		case moved == 0 && last.End > before.End:
			moved = last.Before
		}
		return moved != 0 && last.Before >= moved+since.Nanoseconds()
	})
	return leader
}

// succeeded waits for the leader after one who was lost, and holds it to the
// bound.
func (r *run) succeeded(how string, lost leadershipOf, at time.Time) leadershipOf {
	r.Helper()
	next, since := r.leaderAfter(lost)
	took := since.Sub(at)
	r.Logf("%s: %s leads again %v later (bound %v)", how, next.Name, took.Round(time.Millisecond), bound)
	if took > bound {
		r.Errorf("%s: a leader was back after %v; %v + 2 * %v + %v are allowed", how, took, term, skew, slack)
	}
	return next
}

func (r *run) killed() {
	r.Helper()
	leader := r.extended(0)
	at := time.Now()
	leader.Kill()
	next := r.succeeded("SIGKILL", leader, at)
	r.start(leader.slot)
	r.follows(r.running[leader.slot], next)
}

// pausedPastItsTerm stops a leader until another leads, and a little longer. It does so
// between two writes: who is stopped within a write to a file keeps its lock, and
// nobody can lead (see package file).
func (r *run) pausedPastItsTerm() {
	r.Helper()
	leader := r.extended(writeOver)
	at := time.Now()
	signal(r, leader.Process, syscall.SIGSTOP)
	next := r.succeeded("SIGSTOP", leader, at)
	r.extended(0)
	signal(r, leader.Process, syscall.SIGCONT)
	r.follows(leader.Process, next)
	r.ctxEnded(leader, false)
}

// cutOff lets no byte of the leader's through until another leads.
func (r *run) cutOff() {
	r.Helper()
	leader := r.extended(0)
	at := time.Now()
	r.proxies[leader.slot].Cut()
	next := r.succeeded("cut off", leader, at)
	r.ctxEnded(leader, true)
	r.proxies[leader.slot].Heal()
	r.follows(leader.Process, next)
}

// leavesInOrder ends a leader's process properly: it releases, and nobody waits
// for its term to run out.
func (r *run) leavesInOrder() {
	r.Helper()
	leader := r.extended(0)
	at := time.Now()
	r.leave(r, leader.Process, r.o.patience)
	next, since := r.leaderAfter(leader)
	took := since.Sub(at)
	r.Logf("released: %s leads %v later", next.Name, took.Round(time.Millisecond))
	if most := term/2 + slack; took > most { // they poll twice a term
		r.Errorf("a leader was back %v after a release; PollInterval and %v are allowed: %v", took, slack, most)
	}
}

// follows waits until p has learned of a leadership.
func (r *run) follows(p *fleet.Process, of leadershipOf) {
	r.Helper()
	r.await(fmt.Sprintf("%s to learn of leadership %d", p.Name, of.number), func(lines map[string][]line) bool {
		return slices.ContainsFunc(lines[p.Name], func(l line) bool { return l.Kind == news && l.Number >= of.number })
	})
}

// ctxEnded waits for the end of a lost leadership's ctx, and holds it to its view's,
// if the process could run.
func (r *run) ctxEnded(lost leadershipOf, ran bool) {
	r.Helper()
	var late time.Duration
	r.await("the end of the leader's ctx", func(lines map[string][]line) (ended bool) {
		ended, late = ctxEnded(lines[lost.Name], lost.number)
		return ended
	})
	if ran && late > 0 {
		r.Errorf("process %s, leadership %d: its ctx ended %v after its view, and %v", lost.Name, lost.number, ctxSlack, late)
	}
}

// check holds what the processes have logged to the promises, and shows what they
// said if the test has failed.
func (r *run) check() {
	r.Helper()
	r.Look(func(lines map[string][]line) {
		all, problems := check(lines)
		for _, problem := range problems {
			r.Error(problem)
		}
		if err := checkWrites(lines); err != nil {
			r.Errorf("the specification has it otherwise: %v", err)
		}
		if !r.Failed() {
			return
		}
		for _, l := range all {
			r.Logf("%v: %d acts, from %v to %v, view to %v", l, l.Acts, clock(l.First), clock(l.Last), clock(l.End))
		}
		r.logs(r)
	})
}

func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000000") }
