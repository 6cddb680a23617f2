//go:build go1.25

package sim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// stage is a scenario: a world in which nothing happens by chance.
type stage struct {
	*world
	t *testing.T
}

// play runs a scenario with hosts candidates, whose clocks show true time, and
// then stops them and looks whether any rule was broken.
func play(t *testing.T, hosts int, change func(*Params), f func(s *stage)) {
	t.Helper()
	p := Params{Hosts: hosts, Feed: true, Term: 15 * time.Second, Skew: time.Second, Drain: 15 * time.Second, Calm: 10 * time.Millisecond, Seed: 7}
	if change != nil {
		change(&p)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(p, nil)
		w.staged = true
		for _, h := range w.hosts {
			h.kind = stepping
			h.clock = NewClock(w.epoch, 0, 0, 0, 1)
			h.link = NewLink(h.clock, w.Calm, 7, uint64(len(h.id)))
		}
		f(&stage{w, t})
		w.finish()
		for _, v := range w.rec.violations {
			t.Errorf("VIOLATION: %s", v)
		}
		if t.Failed() {
			t.Log("\n" + w.rec.trace(150))
		}
	})
}

// leads launches the host and waits until it leads.
func (s *stage) leads(h *host) *process {
	s.t.Helper()
	if h.proc == nil {
		h.launch()
	}
	p := h.proc
	for range 200 {
		if p.campaign.View().ValueInFuture() {
			return p
		}
		s.pass(s.Term / 20)
	}
	s.t.Fatalf("%s does not lead:\n%s", h.id, s.rec.trace(60))
	return nil
}

// until lets time pass until done, for no more than d.
func (s *stage) until(d time.Duration, what string, done func() bool) {
	s.t.Helper()
	for began := s.now(); !done(); s.pass(min(10*time.Millisecond, d)) {
		if s.now()-began >= d || s.rec.failed() { // no time passes then
			s.t.Errorf("%s: not within %v", what, d)
			return
		}
	}
}

// cause is why the process's last leadership ended, nil while it has not.
func (s *stage) cause(p *process) error {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	if p.current == nil {
		return nil
	}
	return context.Cause(p.current.ctx)
}

// A clock set forward ends the view; that it is set back again does not bring the
// view back to life.
func TestClockSetForwardAndBack(t *testing.T) {
	play(t, 1, nil, func(s *stage) {
		p := s.leads(s.hosts[0])
		view := p.campaign.View()
		s.hosts[0].clock.Step(time.Hour)
		if view.ValueInFuture() {
			t.Error("the view is in the future, an hour after its end by the wall clock")
		}
		s.hosts[0].clock.Step(0)
		if view.ValueInFuture() {
			t.Error("the view has come back to life")
		}
		s.until(time.Second+ctxSlack, "ctx is cancelled", func() bool { return s.cause(p) != nil })
	})
}

// Somebody writes the record by hand. That is a loss, and is noticed at once.
func TestAnothersRecordOusts(t *testing.T) {
	for _, feed := range []bool{true, false} {
		play(t, 1, func(p *Params) { p.Feed = feed }, func(s *stage) {
			p := s.leads(s.hosts[0])
			store := s.store.(*Memory)
			e, _ := store.read()
			e.LeaderID, e.Incarnation, e.ElectionNumber = "x", "written by hand", e.ElectionNumber+5
			token, err := store.WriteEntry(context.Background(), e)
			if err != nil {
				t.Fatal(err)
			}
			e.Token = token
			s.rec.mu.Lock()
			s.rec.records = append(s.rec.records, *e)
			s.rec.mu.Unlock()
			within := s.Calm * 5
			if !feed {
				within += (s.Term - s.Skew) / 2
			}
			s.until(within, "ctx is cancelled", func() bool { return s.cause(p) != nil })
			if !errors.Is(s.cause(p), le.ErrOusted) {
				t.Errorf("cause %v, want ErrOusted", s.cause(p))
			}
		})
	}
}

// Transfer hands over to whom it names, without a pause of a term.
func TestTransfer(t *testing.T) {
	for _, feed := range []bool{true, false} {
		play(t, 3, func(p *Params) { p.Feed = feed }, func(s *stage) {
			p := s.leads(s.hosts[0])
			b := s.hosts[1]
			s.hosts[2].launch()
			b.launch()
			s.pass(s.Term)
			if err := le.Transfer(context.Background(), s.decider(s.operator()), b.id); err != nil {
				t.Fatal(err)
			}
			within := 20 * s.Calm
			if !feed {
				within += (s.Term-s.Skew)/2 + s.Term/2
			}
			s.until(within, "b does not lead", func() bool { return b.proc.campaign.View().ValueInFuture() })
			if !errors.Is(s.cause(p), le.ErrResigned) {
				t.Errorf("cause %v, want ErrResigned", s.cause(p))
			}
		})
	}
}

// A leader that is told to stop keeps its lease until its work is done, and then
// releases it: the next one leads at once.
func TestLeaseKeptWhileDraining(t *testing.T) {
	play(t, 2, func(p *Params) { p.Drain = 3 * p.Term }, func(s *stage) {
		a, b := s.hosts[0], s.hosts[1]
		p := s.leads(a)
		view := p.campaign.View()
		b.launch()
		work := 2 * s.Term
		s.rec.mu.Lock()
		p.windDown = work
		s.rec.mu.Unlock()
		s.pass(s.Term / 3)
		told := s.now()
		a.leave()
		for s.now()-told < work-s.Term/10 && !s.rec.failed() {
			s.pass(s.Term / 10)
			if !view.ValueInFuture() {
				t.Fatalf("the view is over %v after the leader was told to stop, while it is winding down", s.now()-told)
			}
		}
		<-p.done
		s.until(20*s.Calm, "b leads", func() bool { return b.proc.campaign.View().ValueInFuture() })
	})
}
