//go:build unix

package proctest

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// candidates is how many campaign at any time.
const candidates = 3

// Run runs the election, and fails t where a promise was broken. It takes five to
// ten terms.
func Run(t *testing.T, o Options) {
	t.Helper()
	stores.Nightly(t, "real processes elect by the wall clock")
	o = o.withDefaults()
	r := &run{TB: t, o: o, j: newJournal()}
	if o.Upstream != "" {
		for range candidates {
			r.proxies = append(r.proxies, stores.NewRelay(t, o.Upstream))
		}
	}
	defer r.check() // also where the test ends half way
	for slot := range candidates {
		r.start(slot)
	}
	r.leaderAfter(leadershipOf{}, r.o.patience)
	r.killed()
	r.pausedPastItsTerm()
	if r.proxies != nil {
		r.cutOff()
	}
	r.leavesInOrder()
	for _, p := range r.running {
		p.leave()
		r.await("the end of "+p.name, r.o.patience, func(lines map[string][]line) bool { return has(lines[p.name], gone) })
	}
}

type run struct {
	testing.TB
	o       Options
	j       *journal
	proxies []*stores.Relay
	running [candidates]*process
	begun   int // processes, ever
}

// leadershipOf is a leadership that some process is in.
type leadershipOf struct {
	*process
	number uint64
}

// start starts the candidate of a slot, for the first time or again.
func (r *run) start(slot int) {
	r.Helper()
	address := r.o.Address
	if r.proxies != nil {
		if address = strings.ReplaceAll(address, r.o.Upstream, r.proxies[slot].Addr); address == r.o.Address {
			r.Fatalf("proctest: Upstream %q is not in the Address %q", r.o.Upstream, address)
		}
	}
	id := fmt.Sprint("candidate-", slot)
	r.begun++
	p := r.j.start(r, fmt.Sprintf("%d (%s)", r.begun, id), role{
		ID: id, Address: address, Term: r.o.Term, Skew: r.o.Skew, PollIn: r.o.PollInterval,
		Offset: time.Duration(slot-1) * r.o.Skew / 2, // no two more than Skew apart, as Term + 2*Skew assumes
	}, r.o.Env)
	p.slot = slot
	r.running[slot] = p
}

// await waits until the journal is as wanted.
func (r *run) await(what string, within time.Duration, wanted func(lines map[string][]line) bool) {
	r.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		var ok bool
		var failure string
		more := r.j.look(func(lines map[string][]line) {
			ok = wanted(lines)
			for _, p := range r.running {
				if p == nil || p.closed {
					continue
				}
				for _, l := range lines[p.name] {
					if l.Kind == failed || l.Kind == gone || l.Kind == stopped {
						failure = fmt.Sprintf("process %s has ended: %s %s", p.name, l.Kind, l.Why)
					}
				}
			}
		})
		switch {
		case ok:
			return
		case failure != "":
			r.Fatalf("proctest: waiting for %s: %s", what, failure)
		}
		select {
		case <-more:
		case <-timeout.C:
			r.Fatalf("proctest: %s: not within %v", what, within)
		}
	}
}

func has(lines []line, k kind) bool {
	return slices.ContainsFunc(lines, func(l line) bool { return l.Kind == k })
}

// leaderAfter waits for a leadership later than before, and returns it with the time
// of its first act.
func (r *run) leaderAfter(before leadershipOf, within time.Duration) (leader leadershipOf, since time.Time) {
	r.Helper()
	r.await(fmt.Sprintf("a leader after leadership %d", before.number), within, func(lines map[string][]line) bool {
		for _, p := range r.running {
			if p == nil || p == before.process {
				continue
			}
			for _, l := range lines[p.name] {
				if l.Kind == act && l.Number > before.number && (leader.process == nil || l.Number < leader.number) {
					leader, since = leadershipOf{p, l.Number}, time.Unix(0, l.Before)
				}
			}
		}
		return leader.process != nil
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
		for _, p := range r.running {
			for _, l := range slices.Backward(lines[p.name]) {
				if l.Kind != act {
					continue
				}
				if l.Number > leader.number {
					leader, last = leadershipOf{p, l.Number}, l
				}
				break
			}
		}
		return leader, last
	}
	var last line
	var moved int64 // when
	r.j.look(func(lines map[string][]line) { leader, last = look(lines) })
	r.await("an extension by a leader", r.o.patience, func(lines map[string][]line) bool {
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
	next, since := r.leaderAfter(lost, r.o.patience)
	took := since.Sub(at)
	r.Logf("%s: %s leads again %v later (bound %v)", how, next.name, took.Round(time.Millisecond), r.o.bound())
	if took > r.o.bound() {
		r.Errorf("%s: a leader was back after %v; %v + 2 * %v + %v are allowed", how, took, r.o.Term, r.o.Skew, r.o.Slack)
	}
	return next
}

func (r *run) killed() {
	r.Helper()
	leader := r.extended(0)
	at := time.Now()
	leader.kill()
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
	leader.signal(r, syscall.SIGSTOP)
	next := r.succeeded("SIGSTOP", leader, at)
	r.extended(0)
	leader.signal(r, syscall.SIGCONT)
	r.follows(leader.process, next)
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
	r.follows(leader.process, next)
}

// leavesInOrder ends a leader's process properly: it releases, and nobody waits
// for its term to run out.
func (r *run) leavesInOrder() {
	r.Helper()
	leader := r.extended(0)
	at := time.Now()
	leader.leave()
	r.await("the end of "+leader.name, r.o.patience, func(lines map[string][]line) bool { return has(lines[leader.name], gone) })
	r.j.look(func(lines map[string][]line) {
		if !has(lines[leader.name], stopped) {
			r.Errorf("%s was asked to leave, and did not end in order", leader.name)
		}
	})
	next, since := r.leaderAfter(leader, r.o.patience)
	took := since.Sub(at)
	r.Logf("released: %s leads %v later", next.name, took.Round(time.Millisecond))
	if most := r.o.PollInterval + r.o.Slack; took > most {
		r.Errorf("a leader was back %v after a release; PollInterval %v + %v are allowed", took, r.o.PollInterval, r.o.Slack)
	}
}

// follows waits until p has learned of a leadership.
func (r *run) follows(p *process, of leadershipOf) {
	r.Helper()
	r.await(fmt.Sprintf("%s to learn of leadership %d", p.name, of.number), r.o.patience, func(lines map[string][]line) bool {
		return slices.ContainsFunc(lines[p.name], func(l line) bool { return l.Kind == news && l.Number >= of.number })
	})
}

// ctxEnded waits for the end of a lost leadership's ctx, and holds it to its view's,
// where the process could run.
func (r *run) ctxEnded(lost leadershipOf, ran bool) {
	r.Helper()
	var its *leadership
	r.await("the end of the leader's ctx", r.o.patience, func(lines map[string][]line) bool {
		for _, its = range leaderships(map[string][]line{lost.name: lines[lost.name]}) {
			if its.number == lost.number {
				return its.out != nil
			}
		}
		return false
	})
	if err := ctxEnded(its); ran && err != nil {
		r.Error(err)
	}
}

// check holds what the processes have logged to the promises, and shows what they
// said where the test has failed.
func (r *run) check() {
	r.Helper()
	r.j.look(func(lines map[string][]line) {
		for _, problem := range check(lines) {
			r.Error(problem)
		}
		if err := checkWrites(lines, r.o.Skew); err != nil {
			r.Errorf("the specification has it otherwise: %v", err)
		}
		if !r.Failed() {
			return
		}
		for _, its := range leaderships(lines) {
			r.Logf("%s: %d acts, from %v to %v, view to %v", its, its.acts,
				clock(its.first.Before), clock(its.last.After), clock(its.last.End))
		}
		for name, said := range r.j.stderr {
			r.Logf("process %s:\n%s", name, said)
		}
	})
}

func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000000") }
