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

// until lets time pass until done, for no more than d, and returns how long it
// took.
func (s *stage) until(d time.Duration, what string, done func() bool) time.Duration {
	s.t.Helper()
	began := s.now()
	for !done() {
		if s.now()-began >= d || s.rec.failed() { // no time passes then
			s.t.Errorf("%s: not within %v", what, d)
			return s.now() - began
		}
		s.pass(min(10*time.Millisecond, d))
	}
	return s.now() - began
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

// A suspended machine: timers and the monotonic clock stand still. When it
// resumes, long after its term, the leader's first question is answered with no.
func TestSuspendedMachine(t *testing.T) {
	play(t, 2, nil, func(s *stage) {
		a, b := s.hosts[0], s.hosts[1]
		p := s.leads(a)
		view := p.campaign.View()
		b.launch()
		s.pass(5 * time.Second)
		a.freeze(true)
		s.until(s.Term+3*s.Skew, "b leads", func() bool { return b.proc.campaign.View().ValueInFuture() })
		s.pass(time.Minute)
		a.resume()
		if view.ValueInFuture() {
			t.Error("the view has outlived a suspension of a minute")
		}
		s.until(time.Second+ctxSlack, "ctx is cancelled", func() bool { return s.cause(p) != nil })
		if c := s.cause(p); !errors.Is(c, le.ErrExpired) && !errors.Is(c, le.ErrOusted) {
			t.Errorf("cause %v, want ErrExpired or ErrOusted", c)
		}
	})
}

// A clock set back by an hour, far beyond MaxClockSkew, on a leader that is cut
// off: only the monotonic clock can end its view in time.
func TestClockSetBackFarBeyondItsBound(t *testing.T) {
	play(t, 2, nil, func(s *stage) {
		a, b := s.hosts[0], s.hosts[1]
		p := s.leads(a)
		b.launch()
		s.pass(5 * time.Second)
		a.link.Set(Weather{LoseRequest: 1, Silent: 1, Until: time.Hour}, true)
		s.clear = s.now()
		a.clock.Step(-time.Hour)
		s.until(s.Term, "a's view ends", func() bool { return !p.campaign.View().ValueInFuture() })
		s.until(4*s.Skew, "b leads", func() bool { return b.proc.campaign.View().ValueInFuture() })
		a.clock.Step(0)
		a.link.Set(Weather{}, false)
	})
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

// Every answer to a write is lost, or is that of a client's own second try: the
// leader reads what has become of it, and keeps its leadership.
func TestLostAnswersCostNoLeadership(t *testing.T) {
	for name, weather := range map[string]Weather{
		"lost":    {LoseAnswer: 1, SpareReads: true, Until: time.Hour},
		"retried": {Twice: 1, Until: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, nil, func(s *stage) {
				a := s.hosts[0]
				a.link.Set(weather, false)
				p := s.leads(a)
				number := p.campaign.View().ElectionNumber()
				s.hosts[1].launch()
				s.pass(10 * s.Term)
				if n := p.campaign.View().ElectionNumber(); n != number || s.cause(p) != nil || !p.campaign.View().ValueInFuture() {
					t.Errorf("leadership %d was lost (now %d): %v", number, n, s.cause(p))
				}
				a.link.Set(Weather{}, false)
			})
		})
	}
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

// A store that hangs, and ignores its ctx, does not keep the leader's ctx alive,
// nor does it pile up calls.
func TestStoreThatHangs(t *testing.T) {
	play(t, 1, func(p *Params) { p.Feed = false }, func(s *stage) {
		a := s.hosts[0]
		p := s.leads(a)
		a.link.Set(Weather{Hang: 1, Held: true, Until: s.now() + 10*time.Minute}, false)
		s.clear = s.now() + 10*time.Minute
		s.until(s.Term, "the leadership ends", func() bool { return s.cause(p) != nil })
		s.pass(9 * time.Minute)
		s.rec.mu.Lock()
		flying := p.actor.flying
		s.rec.mu.Unlock()
		if flying == 0 || flying > 8 {
			t.Errorf("%d calls hang after nine minutes", flying)
		}
		s.pass(2 * time.Minute)
	})
}

// On a feed that works a standby makes no requests at all.
func TestStandbyOnAFeedIsSilent(t *testing.T) {
	play(t, 2, nil, func(s *stage) {
		s.leads(s.hosts[0])
		b := s.hosts[1]
		b.launch()
		s.pass(s.Term)
		before := b.proc.actor.calls
		s.pass(20 * s.Term)
		if n := b.proc.actor.calls - before; n > 0 {
			t.Errorf("%d store calls within 20 terms", n)
		}
	})
}
