package leaderelection

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// play is one candidate's lease, in a table's row.
type play struct {
	*testing.T
	*lease
	n int // writes so far
}

var leads = wish{lead: true, keep: true, extend: tT / 2}

func newPlay(t *testing.T, change ...func(*policy)) *play {
	p := &policy{id: "a", term: tT, skew: tS, checked: true}
	for _, f := range change {
		f(p)
	}
	return &play{T: t, lease: newLease(p)}
}

// due fails unless the lease asks for the call at now.
func (p *play) due(now instant, w wish, want OpKind) {
	p.Helper()
	if got := p.next(now, w); got != want {
		p.Fatalf("%v after the beginning it asks for %q, want %q", now.mono-time.Hour, got, want)
	}
}

// begins is a write that begins.
func (p *play) begins(now instant, w wish, kind OpKind) *RaceEntry {
	p.Helper()
	p.due(now, w, kind)
	p.n++
	return p.issue(now, kind, fmt.Sprint("id", p.n), fmt.Sprint("a", p.n))
}

// written is a write that is answered at once.
func (p *play) written(now instant, kind OpKind) *RaceEntry {
	p.Helper()
	r := lands(p.begins(now, leads, kind))
	p.answers(r, wasWritten, now, now)
	return r
}

// unanswered is a write that has failed.
func (p *play) unanswered(now instant, kind OpKind) *RaceEntry {
	p.Helper()
	defer p.open(nil)
	return p.begins(now, leads, kind)
}

// lands gives the write its version. With a stamp, the store tells its time.
func lands(r *RaceEntry, stamp ...time.Duration) *RaceEntry {
	v := version{of: fmt.Sprint(*r)}
	for _, d := range stamp {
		v.at = zero.Add(d)
	}
	r.Token = v
	return r
}

// answers is the answer to a write of r, or a read that shows r.
func (p *play) answers(r *RaceEntry, how source, began, now instant) { p.learn(r, how, began, now) }

// reads is a read that takes no time.
func (p *play) reads(r *RaceEntry, now instant) { p.learn(r, wasRead, now, now) }

func measures(p *policy) { p.measured, p.checked = true, false }

func holding(d time.Duration) func(*policy) { return func(p *policy) { p.hold = d } }

// acquiring has the lease begin to acquire a vacant record at 0.
func acquiring(t *testing.T, change ...func(*policy)) (*play, *RaceEntry) {
	t.Helper()
	p := newPlay(t, change...)
	p.reads(vacant(3), at(0))
	return p, p.begins(at(0), leads, OpAcquire)
}

// elected has the lease win that record.
func elected(t *testing.T, change ...func(*policy)) (*play, *RaceEntry) {
	t.Helper()
	p, won := acquiring(t, change...)
	p.answers(lands(won), wasWritten, at(0), at(0))
	if p.lead == nil {
		t.Fatalf("it does not lead: %v", p.ended)
	}
	return p, won
}

// liveUntil fails unless the view lives until d by a right clock, and no longer.
func (p *play) liveUntil(d time.Duration) {
	p.Helper()
	if p.lead == nil {
		p.Fatalf("it does not lead: %v", p.ended)
	}
	if v := p.lead.view; !v.live(at(d-1)) || v.live(at(d)) {
		p.Errorf("the view lives until %v, or %v by the monotonic clock; want %v", v.wall.Sub(zero), v.mono-time.Hour, d)
	}
}

// endedBy fails unless there is no view, for that cause.
func (p *play) endedBy(cause error) {
	p.Helper()
	if p.lead != nil || !errors.Is(p.ended, cause) {
		p.Errorf("the view has ended: %t, by %v; want %v", p.lead == nil, p.ended, cause)
	}
}

type rows map[string]func(t *testing.T)

func (all rows) run(t *testing.T) {
	for name, row := range all {
		t.Run(name, row)
	}
}

// Rule 1: what a write of the lease claims.
func TestLeaseRule1Term(t *testing.T) {
	rows{
		"until T after the look at the clock before it": func(t *testing.T) {
			_, won := elected(t)
			if !won.TermExpiry.Equal(zero.Add(tT)) || won.TermLength != tT || won.LeaderID != "a" || won.Vacant() || won.Hold != 0 {
				t.Errorf("%+v", won)
			}
		},
		"it never goes back, and neither term nor view grows": func(t *testing.T) {
			p, won := elected(t)
			r := p.begins(off(tT/2, -time.Hour), leads, OpExtend)
			if !r.TermExpiry.Equal(won.TermExpiry) || r.Unsynchronized {
				t.Errorf("%+v", r)
			}
			p.answers(lands(r), wasWritten, off(tT/2, -time.Hour), off(tT/2, -time.Hour))
			p.liveUntil(tT - tS)
			if v := p.lead.view; v.live(off(tT-tS, -time.Hour)) || !v.live(off(tT-tS-1, -time.Hour)) {
				t.Errorf("by the monotonic clock it lives until %v", v.mono-time.Hour)
			}
		},
		"nor by a later attempt": func(t *testing.T) {
			p, won := elected(t)
			lost := p.unanswered(at(tT/2), OpExtend)
			p.reads(won, at(tT/2+1))
			now := off(tT/2+tS, -time.Hour)
			r := p.written(now, OpExtend)
			if !r.TermExpiry.Equal(lost.TermExpiry) {
				t.Errorf("%+v after %+v", r, lost)
			}
			if v := p.lead.view; v.live(off(tT/2+tT-tS, -time.Hour)) || !v.live(off(tT/2+tT-tS-1, -time.Hour)) {
				t.Errorf("by the monotonic clock it lives until %v", v.mono-time.Hour)
			}
		},
		"marked records differ by it": func(t *testing.T) {
			p, won := elected(t, measures)
			w := wish{lead: true, keep: true, extend: tS / 4}
			r := p.begins(off(tS/4, -tS/2), w, OpExtend) // the clock was set back by less than the allowance
			if !won.Unsynchronized || !r.Unsynchronized || !r.TermExpiry.Equal(won.TermExpiry.Add(1)) {
				t.Errorf("%+v after %+v", r, won)
			}
		},
		"every write has another Extension and WriteID": func(t *testing.T) {
			p, won := elected(t)
			one := p.unanswered(at(tT/2), OpExtend)
			p.reads(won, at(tT/2+1))
			two := p.begins(at(tT/2+1), leads, OpExtend)
			if one.Extension != 1 || two.Extension != 2 || one.WriteID == two.WriteID || one.Incarnation != won.Incarnation || two.ElectionNumber != won.ElectionNumber {
				t.Errorf("%+v, %+v", one, two)
			}
		},
		"an announcement is in it": func(t *testing.T) {
			p, _ := elected(t)
			p.hostPort, p.params = []string{"h:1"}, []byte("x")
			if r := p.begins(at(tT/2), leads, OpExtend); r.HostPort[0] != "h:1" || string(r.ConnectionParams) != "x" {
				t.Errorf("%+v", r)
			}
		},
		"nor behind what was asked for and is not answered": func(t *testing.T) {
			p, won := elected(t)
			one := p.unanswered(at(tT/2), OpExtend)
			p.reads(won, at(tT/2))
			two := p.written(off(tT/2+1, -tS), OpExtend)
			if !two.TermExpiry.Equal(one.TermExpiry) {
				t.Errorf("%+v after %+v", two, one)
			}
			p.liveUntil(tT/2 + tT - tS)
		},
		"greater than that of a request, though an older state is read": func(t *testing.T) {
			p, won := elected(t)
			p.answers(asked(won, "c"), wasPushed, at(1), at(1))
			p.reads(won, at(2))
			if r := p.begins(at(tT/2), leads, OpExtend); r.Extension != 2 {
				t.Errorf("%+v", r)
			}
		},
		"or a newer one was pushed": func(t *testing.T) {
			p, won := elected(t)
			p.answers(held(9, 0), wasPushed, at(1), at(1))
			p.reads(asked(won, "c"), at(2))
			if r := p.begins(at(2), wish{}, OpRelease); r.Extension != 2 {
				t.Errorf("%+v", r)
			}
		},
	}.run(t)
}

// Rule 2: when a view ends.
func TestLeaseRule2View(t *testing.T) {
	rows{
		"what is learned when it is over does not find it true": func(t *testing.T) {
			p, _ := elected(t)
			p.answers(vacant(2), wasPushed, off(tS, time.Hour), off(tS, time.Hour)) // then the clock is set back
			p.endedBy(ErrExpired)
		},
		"S before the term, counted from before the write": func(t *testing.T) {
			p, won := acquiring(t)
			p.answers(lands(won), wasWritten, at(0), at(2*time.Second))
			p.liveUntil(tT - tS)
		},
		"by either clock": func(t *testing.T) {
			p, _ := elected(t)
			if v := p.lead.view; v.live(off(tT-tS, -time.Hour)) || v.live(off(1, tT-tS-1)) || !v.live(off(1, tT-tS-2)) {
				t.Error("a clock that was set back lengthens it, or one that was set forward does not end it")
			}
		},
		"once over it stays over": func(t *testing.T) {
			p, _ := elected(t)
			p.look(off(1, tT))
			p.endedBy(ErrExpired)
			p.look(at(2))
			p.endedBy(ErrExpired)
		},
		"and is not extended, even if nobody has looked": func(t *testing.T) {
			p, _ := elected(t)
			p.due(at(tT-tS), leads, OpAcquire)
			p.endedBy(ErrExpired)
		},
		"an answer that is too late begins none": func(t *testing.T) {
			p, won := acquiring(t)
			p.answers(lands(won), wasWritten, at(0), at(tT-tS))
			if p.lead != nil {
				t.Error("it leads by a view that is over")
			}
		},
		"and none again by the same write": func(t *testing.T) {
			p, won := elected(t)
			p.leave(ErrResigned)
			p.reads(won, at(1))
			p.endedBy(ErrResigned)
		},
		"an answer moves it": func(t *testing.T) {
			p, _ := elected(t)
			p.written(at(tT/2), OpExtend)
			p.liveUntil(tT/2 + tT - tS)
		},
		"an earlier attempt that has landed moves it": func(t *testing.T) {
			p, won := elected(t)
			one := p.unanswered(at(tT/2), OpExtend)
			p.reads(won, at(tT/2))
			p.unanswered(at(tT/2+tS), OpExtend)
			p.reads(lands(one), at(tT/2+tS))
			p.liveUntil(tT/2 + tT - tS)
		},
		"an older write of its own does not move it back": func(t *testing.T) {
			p, won := elected(t)
			one := p.unanswered(at(tT/2), OpExtend)
			p.reads(won, at(tT/2))
			p.written(at(tT/2+tS), OpExtend)
			p.reads(lands(one), at(tT/2+tS))
			p.liveUntil(tT/2 + tT)
		},
		"a feed neither begins nor moves it": func(t *testing.T) {
			p, won := acquiring(t)
			if p.answers(lands(won), wasPushed, at(0), at(0)); p.lead != nil {
				t.Fatal("it leads by what a feed tells")
			}
			p.due(at(0), leads, OpRead)
			p.reads(won, at(0))
			r := p.begins(at(tT/2), leads, OpExtend)
			p.answers(lands(r), wasPushed, at(tT/2), at(tT/2))
			p.liveUntil(tT - tS)
			p.due(at(tT/2), leads, OpRead)
		},
		"measured: what was lost to a suspend counts, though the clock is set back later": func(t *testing.T) {
			p, _ := elected(t, measures)
			p.look(off(tS, 5*time.Second)) // five seconds on the wall clock alone
			if v := p.lead.view; !v.live(off(tT-tS-5*time.Second-1, 5*time.Second)) || v.live(off(tT-tS-5*time.Second, 4500*time.Millisecond)) {
				t.Errorf("%+v", v)
			}
			p.look(off(2*tS, 3*time.Second)) // set back by more than the allowance
			p.endedBy(ErrExpired)
		},
		"measured: a suspend while the acquisition is out, though the clock is set back later": func(t *testing.T) {
			for _, ahead := range []time.Duration{5 * time.Second, -5 * time.Second} { // by -5 s it would hide a suspend
				p, won := acquiring(t, measures)
				p.look(off(tS, ahead))
				if p.answers(lands(won), wasWritten, at(0), off(2*tS, tS/2)); p.lead != nil {
					t.Errorf("it leads by %+v", p.lead.view)
				}
			}
		},
		"measured: a set-back within the allowance brings it forward": func(t *testing.T) {
			p, _ := elected(t, measures)
			if v := p.lead.view; !v.live(off(1, -tD)) || v.live(off(1, -tD-1)) {
				t.Error("set back by more than the allowance, it must not go on, even if nobody has looked")
			}
			for i := range 3 {
				p.look(off(time.Duration(i), -time.Duration(i)*900*time.Millisecond))
			}
			if v := p.lead.view; v.live(off(0, tT-tS-1800*time.Millisecond)) || !v.live(off(0, tT-tS-2800*time.Millisecond)) {
				t.Errorf("%+v", v)
			}
		},
		"the alarm is set for its end, by either clock, or for its extension": func(t *testing.T) {
			p, _ := elected(t)
			for _, c := range []struct {
				now  instant
				w    wish
				want time.Duration
			}{
				{at(tS), wish{extend: tT / 2}, tT - 2*tS},
				{off(tS, -tT), wish{extend: tT / 2}, tT - 2*tS},
				{off(tS, tS), wish{extend: tT / 2}, tT - 3*tS},
				{off(tS, tT), wish{}, 0},
				{off(tT, -tT), wish{}, 0},
				{at(tS), leads, tT/2 - tS},
				{at(tT / 2), leads, tT/2 - tS}, // the extension is out
			} {
				a := newAlarm(c.now)
				if p.wake(&a, c.w); a.in != c.want {
					t.Errorf("%v, %+v: after %v, want %v", c.now, c.w, a.in, c.want)
				}
			}
		},
		"measured: a suspend counts from when it may have won": func(t *testing.T) {
			p, won := acquiring(t, measures)
			if !p.measuring(at(tT-tS-1)) || p.measuring(at(tT-tS)) {
				t.Error("not as long as its view could be")
			}
			p.open(nil)
			if !p.measuring(at(1)) {
				t.Error("not while its outcome is open")
			}
			if p.answers(lands(won), wasWritten, at(0), at(1)); p.measuring(at(1)) {
				t.Error("of a write that has its answer")
			}
			p.written(at(tT/2), OpExtend)
			if p.measuring(at(tT / 2)) {
				t.Error("of an extension that has its answer")
			}
			if p, _ := elected(t); p.measuring(at(1)) {
				t.Error("though wall clocks are compared")
			}
		},
		"measured: each nanosecond counts": func(t *testing.T) {
			p, _ := elected(t, measures)
			p.look(off(1, 1))
			if v := p.lead.view; v.live(at(tT-tS-1)) || !v.live(at(tT-tS-2)) {
				t.Errorf("%+v", v)
			}
		},
		"measured: a set-back by more ends it, though the clock is set right before the answer": func(t *testing.T) {
			p, won := acquiring(t, measures)
			p.look(off(1, -tD-1))
			if p.answers(lands(won), wasWritten, at(0), at(2)); p.lead != nil {
				t.Error("it leads")
			}
		},
		"measured: a set-back by the allowance is within it": func(t *testing.T) {
			for back, lives := range map[time.Duration]bool{tD: true, tD + 1: false} {
				p, _ := elected(t, measures)
				if p.lead.view.live(off(tS, -back)) != lives {
					t.Errorf("set back by %v, it lives: %t", back, !lives)
				}
				if p.look(off(tS, -back)); (p.lead != nil) != lives {
					t.Errorf("set back by %v, it still lives: %t", back, !lives)
				}
			}
		},
	}.run(t)
}

// Rule 5: what an acquisition writes. TestLeaseRule5Acquire has when it comes.
func TestLeaseRule5AcquisitionWrites(t *testing.T) {
	for name, c := range map[string]struct {
		known []*RaceEntry
		want  ElectionNumber
	}{
		"after a vacancy":                    {[]*RaceEntry{vacant(3)}, 4},
		"greater than all seen":              {[]*RaceEntry{held(5, -time.Hour), vacant(3), vacant(3)}, 6},
		"the first is the time":              {[]*RaceEntry{{}}, ElectionNumber(zero.Unix())},
		"unless a greater one was seen":      {[]*RaceEntry{held(1<<40, -time.Hour), {Emptied: true}, {Emptied: true}}, 1<<40 + 1},
		"it is conditional on what was read": {[]*RaceEntry{vacant(3), vacant(3, by("y"), extended(10))}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t)
			for _, r := range c.known {
				p.reads(r, at(-time.Minute))
			}
			last := c.known[len(c.known)-1]
			p.reads(last, at(0))
			if r := p.begins(at(0), leads, OpAcquire); r.ElectionNumber != c.want || !sameVersion(r.Token, last.Token) || r.Extension != 0 || r.Incarnation != "a1" {
				t.Errorf("%+v, want number %d", r, c.want)
			}
		})
	}
	rows{
		"odd clocks": func(t *testing.T) {
			for wall, want := range map[time.Time]ElectionNumber{time.Unix(-9, 0): 1, time.Unix(lastBorn, 0).AddDate(500, 0, 0): ElectionNumber(lastBorn)} {
				p := newPlay(t)
				p.reads(&RaceEntry{}, instant{wall, 0})
				if r := p.begins(instant{wall, 0}, leads, OpAcquire); r.ElectionNumber != want {
					t.Errorf("%v: number %d, want %d", wall, r.ElectionNumber, want)
				}
			}
		},
		"a read counts from when it began": func(t *testing.T) {
			p := newPlay(t)
			p.learn(held(3, 0), wasRead, at(tT), at(tT+2*tS))
			p.due(at(tT+2*tS), leads, OpRead)
		},
		"and a measured wait from its answer": func(t *testing.T) {
			p := newPlay(t, measures)
			p.learn(held(3, 0), wasRead, at(0), at(3*tS))
			p.due(at(3*tS+tT+tD-1), leads, "")
			p.due(at(3*tS+tT+tD), leads, OpRead)
		},
		"none while work runs": func(t *testing.T) {
			p := newPlay(t)
			p.reads(vacant(3), at(0))
			p.due(at(0), wish{lead: true, work: true}, "")
			p.due(at(0), wish{}, "")
			p.due(at(0), leads, OpAcquire)
		},
		"one's own record is free, and keeps its Incarnation": func(t *testing.T) {
			p, won := elected(t)
			p.look(at(tT - tS))
			p.endedBy(ErrExpired)
			if r := p.begins(at(tT-tS), leads, OpAcquire); r.Incarnation != won.Incarnation || r.ElectionNumber != won.ElectionNumber+1 || r.WriteID == won.WriteID {
				t.Errorf("%+v after %+v", r, won)
			}
		},
		"what is not known is handed on": func(t *testing.T) {
			p := newPlay(t)
			p.reads(vacant(3, func(r *RaceEntry) { r.Extra = map[string]string{"new": "1"} }), at(0))
			if r := p.begins(at(0), leads, OpAcquire); r.Extra["new"] != "1" {
				t.Errorf("%+v", r)
			}
		},
		"however late, though it is not answered": func(t *testing.T) {
			p, won := elected(t)
			p.unanswered(at(3*tT), OpAcquire)
			p.reads(won, at(3*tT+1))
			if r := p.begins(at(3*tT+1), leads, OpAcquire); r.Incarnation != won.Incarnation {
				t.Errorf("%+v after %+v", r, won)
			}
		},
	}.run(t)
}

// Rule 6, for who has robbed another by a clock that was ahead: no view, and no release before the quiet ends.
func TestLeaseRule6QuietOfARobber(t *testing.T) {
	const s, ahead = time.Second, tT + 5*time.Second
	rob := func(t *testing.T, over *RaceEntry) (*play, *RaceEntry) {
		p := newPlay(t)
		p.reads(over, off(s, ahead))
		return p, p.begins(off(s, ahead), leads, OpAcquire)
	}
	kept := func(t *testing.T, p *play) {
		t.Helper()
		if p.lead != nil {
			t.Fatal("it leads")
		}
		p.due(off(s+tT+tD-1, ahead), leads, "")
		if r := p.begins(off(s+tT+tD, ahead), leads, OpRelease); !r.Vacant() || !r.Unsynchronized {
			t.Errorf("%+v", r)
		}
	}
	rows{
		"its answer shows it": func(t *testing.T) {
			p, r := rob(t, held(3, 0))
			p.answers(lands(r, s+1), wasWritten, off(s, ahead), off(s, ahead))
			kept(t, p)
		},
		"a read does": func(t *testing.T) {
			p, r := rob(t, held(3, 0))
			p.open(nil)
			p.reads(lands(r, s+1), off(2*s, ahead))
			kept(t, p)
		},
		"its answer, after the clock was set right": func(t *testing.T) {
			p, r := rob(t, held(3, 0))
			p.answers(lands(r, s+1), wasWritten, off(s, ahead), at(2*s))
			kept(t, p)
		},
		"its answer, of which a feed has told": func(t *testing.T) {
			p, r := rob(t, held(3, 0))
			p.answers(lands(r), wasPushed, off(s, ahead), off(s, ahead))
			p.answers(lands(r, s+1), wasWritten, off(s, ahead), off(s, ahead))
			kept(t, p)
		},
		"a read of a request on it does": func(t *testing.T) {
			p, r := rob(t, held(3, 0))
			p.open(nil)
			request := asked(lands(r), "c")
			request.Token = version{"request", zero.Add(2*s + 1)}
			p.reads(request, off(2*s, ahead))
			kept(t, p)
		},
		"its own bound does": func(t *testing.T) {
			p, r := rob(t, held(3, 0))
			p.answers(lands(r), wasWritten, off(s, ahead), off(s, ahead))
			p.bounded(time.Hour)
			p.endedBy(ErrClockSkew)
			kept(t, p)
		},
		"of a longer term": func(t *testing.T) {
			p, r := rob(t, held(3, -tT, ofTerm(2*tT)))
			p.answers(lands(r, s+1), wasWritten, off(s, ahead), off(s, ahead))
			p.due(off(s+2*tT+tD-1, ahead), leads, "")
			p.due(off(s+2*tT+tD, ahead), leads, OpRelease)
		},
		"it is given back, however late": func(t *testing.T) {
			p, r := rob(t, held(3, 0))
			p.answers(lands(r, s+1), wasWritten, off(s, ahead), off(s, ahead))
			p.due(off(5*tT, ahead), leads, OpRelease)
		},
		"its own bound of nothing that it robbed": func(t *testing.T) {
			p, _ := elected(t)
			if p.bounded(0); p.lead == nil || p.quiet != 0 {
				t.Fatalf("%v, quiet until %v", p.ended, p.quiet)
			}
			p.bounded(time.Hour)
			p.due(at(1), leads, OpRelease)
		},
		"a vacancy robs nobody": func(t *testing.T) {
			p, r := rob(t, vacant(3))
			p.answers(lands(r, s+1), wasWritten, off(s, ahead), off(s, ahead))
			if p.lead != nil {
				t.Error("it leads")
			}
			p.due(off(s, ahead), leads, OpRelease)
		},
		"a bound that fits does not": func(t *testing.T) {
			p, r := rob(t, held(3, 0))
			p.answers(lands(r), wasWritten, off(s, ahead), off(s, ahead))
			p.bounded(tS)
			p.leave(ErrResigned)
			p.due(off(s, ahead), wish{}, OpRelease)
		},
		"nor by its own bound": func(t *testing.T) {
			p, r := rob(t, vacant(3))
			p.answers(lands(r), wasWritten, off(s, ahead), off(s, ahead))
			p.bounded(time.Hour)
			p.endedBy(ErrClockSkew)
			p.due(off(s, ahead), leads, OpRelease)
		},
	}.run(t)
}

// Rule 6, for a store that was set back: an acquisition over an older state than the newest known is accepted. It begins
// no view. After the quiet, the next does.
func TestLeaseRule6QuietOfASetBack(t *testing.T) {
	rows{
		"its answer shows it": func(t *testing.T) {
			p := newPlay(t)
			p.reads(held(5, -time.Hour), at(-1))
			p.reads(vacant(3), at(0))
			r := p.begins(at(0), leads, OpAcquire)
			p.answers(lands(r), wasWritten, at(0), at(tS))
			if p.lead != nil || r.ElectionNumber != 6 {
				t.Fatalf("it leads %t, by %+v", p.lead != nil, r)
			}
			p.due(at(tS+tT+tD-1), leads, "")
			p.due(at(tS+tT+tD-1), wish{}, "")
			p.due(at(tS+tT+tD), leads, OpRead)
			p.reads(r, at(tS+tT+tD))
			r = p.begins(at(tS+tT+tD), leads, OpAcquire)
			p.answers(lands(r), wasWritten, at(tS+tT+tD), at(tS+tT+tD))
			if p.liveUntil(tS + tT + tD + tT - tS); r.ElectionNumber != 7 || r.Unsynchronized {
				t.Errorf("%+v", r)
			}
		},
		"who does not want to lead any more gives it back then": func(t *testing.T) {
			p := newPlay(t)
			p.reads(held(5, -time.Hour), at(-1))
			p.reads(vacant(3), at(0))
			p.written(at(0), OpAcquire)
			p.due(at(tT+tD-1), wish{}, "")
			p.due(at(tT+tD), wish{}, OpRelease)
		},
		"a refusal shows nothing": func(t *testing.T) {
			p := newPlay(t)
			p.reads(held(5, -time.Hour), at(-1))
			p.reads(vacant(3), at(0))
			p.begins(at(0), leads, OpAcquire)
			p.open(vacant(3))
			p.reads(held(5, -time.Hour), at(1))
			p.written(at(1), OpAcquire)
			p.liveUntil(1 + tT - tS)
		},
		"so does what only a feed has told of, even if it is one's own": func(t *testing.T) {
			p, r := acquiring(t)
			p.open(nil)
			p.answers(lands(r), wasPushed, at(0), at(0))
			p.reads(vacant(3), at(1)) // the store was set back, perhaps by so much that others have led
			p.written(at(1), OpAcquire)
			p.due(at(1+tT+tD-1), leads, "")
		},
		"so does the release of an older state": func(t *testing.T) {
			p, won := elected(t)
			newest := p.written(at(tT/2), OpExtend)
			p.leave(ErrResigned)
			p.reads(won, at(tT/2+3)) // the store was set back, and another may lead by what it has lost
			r := p.begins(at(tT/2+3), wish{}, OpRelease)
			p.open(nil)
			p.reads(newest, at(tT/2+4)) // a replica that was not set back
			p.reads(lands(r), at(tT/2+5))
			p.due(at(tT/2+5+tT+tD-1), leads, "")
			p.due(at(tT/2+5+tT+tD), leads, OpRead)
		},
		"and an acquisition that was to be released": func(t *testing.T) {
			p, won := elected(t)
			p.leave(ErrResigned)
			p.reads(vacant(1), at(1)) // the store was set back
			r := p.unanswered(at(1), OpAcquire)
			p.reads(won, at(2)) // a replica that was not
			p.begins(at(2), wish{}, OpRelease)
			p.open(nil)
			p.reads(lands(r), at(4))
			p.due(at(4+tT+tD-1), wish{}, "")
			p.due(at(4+tT+tD), wish{}, OpRelease)
		},
		"or what was told of before the answer": func(t *testing.T) {
			p, r := acquiring(t)
			p.answers(held(r.ElectionNumber, tT), wasPushed, at(1), at(1))
			p.answers(lands(r), wasPushed, at(2), at(2))
			p.answers(r, wasWritten, at(0), at(3))
			p.endedBy(nil)
			p.due(at(3+tT+tD-1), leads, "")
		},
		"but no stale read of what others have followed": func(t *testing.T) {
			p, r := acquiring(t)
			p.open(nil)
			p.reads(held(9, tT), at(tS))
			if p.reads(lands(r), at(tS+1)); p.lead != nil || p.quiet != 0 {
				t.Errorf("it leads %t, and is quiet until %v", p.lead != nil, p.quiet)
			}
		},
		"but no vacancy that is released over the newest, or read again, or another's": func(t *testing.T) {
			p, won := elected(t)
			p.leave(ErrResigned)
			r := lands(p.begins(at(1), wish{}, OpRelease))
			p.answers(r, wasWritten, at(1), at(1))
			other, released := held(9, tT), held(9, tT)
			released.LeaderID, released.Extension = "", 1
			for n, e := range []*RaceEntry{won, r, other, r, released} {
				p.reads(e, at(time.Duration(2+n)))
			}
			if p.quiet != 0 {
				t.Errorf("it is quiet until %v", p.quiet)
			}
		},
		"but not what was written over it": func(t *testing.T) {
			p, r := acquiring(t)
			p.answers(asked(lands(r), "c"), wasPushed, at(1), at(1))
			p.answers(r, wasWritten, at(0), at(2))
			p.liveUntil(tT - tS)
		},
	}.run(t)
}

// Rule 7: a write that was not answered, or was refused, is an open question.
func TestLeaseRule7Open(t *testing.T) {
	rows{
		"a read comes before any other write, and confirms": func(t *testing.T) {
			p, _ := elected(t)
			r := p.unanswered(at(tT/2), OpExtend)
			p.due(at(tT/2+1), leads, OpRead)
			p.reads(lands(r), at(tT/2+2))
			p.liveUntil(tT/2 + tT - tS)
			p.due(at(tT/2+2), leads, "")
		},
		"or shows that it did not happen": func(t *testing.T) {
			p, won := elected(t)
			p.unanswered(at(tT/2), OpExtend)
			p.reads(won, at(tT/2+2))
			p.liveUntil(tT - tS)
			p.due(at(tT/2+2), leads, OpExtend)
		},
		"an acquisition": func(t *testing.T) {
			p, won := acquiring(t)
			p.open(nil)
			p.due(at(1), leads, OpRead)
			if p.stake() != time.Hour+tT-tS {
				t.Errorf("at stake until %v", p.stake())
			}
			p.reads(lands(won), at(2))
			p.liveUntil(tT - tS)
		},
		"a release": func(t *testing.T) {
			p, won := elected(t)
			p.leave(ErrResigned)
			p.begins(at(1), wish{}, OpRelease)
			p.open(nil)
			p.due(at(2), wish{}, OpRead)
			p.reads(won, at(3))
			p.due(at(3), wish{}, OpRelease)
		},
		"a stale read does not settle it for who leaves": func(t *testing.T) {
			p, won := acquiring(t)
			p.open(nil)
			p.reads(vacant(3), at(1))
			if !p.holds(at(1)) {
				t.Fatal("it may have won")
			}
			p.due(at(1), wish{}, OpRead)
			p.reads(lands(won), at(2))
			p.refuse(ErrResigned)
			p.due(at(2), wish{}, OpRelease)
		},
		"nor what became of a release of which a feed has told": func(t *testing.T) {
			p, won := elected(t)
			p.leave(ErrResigned)
			r := p.begins(at(1), wish{}, OpRelease)
			p.answers(lands(r), wasPushed, at(1), at(1))
			p.open(nil)
			p.reads(vacant(3), at(2))
			p.due(at(2), wish{}, OpRead)
			p.reads(won, at(3))
			p.due(at(3), wish{}, OpRelease)
		},
		"an extension, when the view is over": func(t *testing.T) {
			p, _ := elected(t)
			r := p.unanswered(at(tT/2), OpExtend)
			if p.look(at(tT)); p.lead != nil || !p.holds(at(tT)) || p.holds(at(tT/2+tT)) {
				t.Error("it may have landed, for a term from when it began")
			}
			p.due(at(tT), wish{}, OpRead)
			p.reads(lands(r), at(tT))
			p.due(at(tT), wish{}, OpRelease)
		},
		"nothing is held when a term is over, or another has the record": func(t *testing.T) {
			p, _ := acquiring(t)
			p.open(nil)
			if !p.holds(at(tT-1)) || p.holds(at(tT)) {
				t.Error("for a term from when it began")
			}
			p.reads(vacant(3, extended(10)), at(1))
			if p.holds(at(1)) {
				t.Error("what it was conditional on is gone")
			}
			p.reads(held(9, 0), at(1))
			if p.holds(at(1)) {
				t.Error("a newer record of another")
			}
		},
		"an operator's request on it shows that it happened": func(t *testing.T) {
			p, won := acquiring(t)
			p.open(nil)
			p.reads(asked(lands(won), "c"), at(1))
			if p.liveUntil(tT - tS); p.lead.asked != "c" {
				t.Errorf("asked for %q", p.lead.asked)
			}
		},
		"who is refused as it begins leaves no Hold": func(t *testing.T) {
			p, _ := elected(t, holding(time.Minute))
			p.refuse(ErrResigned)
			if r := p.begins(at(1), wish{}, OpRelease); r.Hold != 0 {
				t.Errorf("%+v", r)
			}
		},
		"what was refused over an old version is read twice": func(t *testing.T) {
			p := newPlay(t)
			p.reads(held(5, -time.Hour), at(-time.Minute))
			p.reads(vacant(3), at(-time.Minute))
			p.reads(vacant(3), at(0))
			p.begins(at(0), leads, OpAcquire)
			p.open(vacant(3))
			p.open(nil) // nor has the next an answer
			p.due(at(1), leads, OpRead)
			p.reads(vacant(3), at(1))
			p.due(at(1), leads, OpRead)
			p.reads(vacant(3), at(2))
			p.due(at(2), leads, OpAcquire)
		},
		"over the newest, once": func(t *testing.T) {
			p, _ := acquiring(t)
			p.open(vacant(3))
			p.due(at(1), leads, OpRead)
			p.reads(vacant(3), at(1))
			p.due(at(1), leads, OpAcquire)
		},
		"either of two may have happened": func(t *testing.T) {
			p, won := elected(t)
			one := p.unanswered(at(tT/2), OpExtend)
			p.reads(won, at(tT/2+1))
			p.unanswered(at(tT/2+1), OpExtend)
			p.reads(lands(one), at(tT/2+2))
			p.liveUntil(tT/2 + tT - tS)
		},
		"and is its own, as long as others wait for it": func(t *testing.T) {
			p, late := newPlay(t), at(tT-tS/2)
			p.reads(vacant(3), at(0))
			one := p.unanswered(at(0), OpAcquire)
			p.reads(vacant(3), late)
			p.unanswered(late, OpAcquire)
			p.reads(lands(one), late)
			p.due(late, leads, OpAcquire)
		},
		"the alarm is set for when it is nothing any more": func(t *testing.T) {
			p, _ := acquiring(t)
			p.open(nil)
			for now, want := range map[time.Duration]time.Duration{1: tT - 1, tT: time.Hour} {
				a := newAlarm(at(now))
				if p.wake(&a, wish{}); a.in != want {
					t.Errorf("at %v: after %v, want %v", now, a.in, want)
				}
			}
		},
		"nor one that hides what was won": func(t *testing.T) {
			p, won := elected(t)
			p.reads(asked(won, "c"), at(1))
			p.leave(ErrResigned)
			p.reads(vacant(3), at(2))
			p.due(at(2), wish{}, OpRead)
		},
		"what was begun over a pushed vacancy": func(t *testing.T) {
			p := newPlay(t)
			p.answers(vacant(3), wasPushed, at(0), at(0))
			p.unanswered(at(0), OpAcquire)
			p.due(at(1), wish{}, OpRead)
		},
	}.run(t)
}

// Rule 8: what ends a view, and what does not.
func TestLeaseRule8Loss(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(won *RaceEntry) *RaceEntry
		how  source
		lost bool
	}{
		"a newer leader, read":       {func(*RaceEntry) *RaceEntry { return held(9, 0) }, wasRead, true},
		"a newer leader, pushed":     {func(*RaceEntry) *RaceEntry { return held(9, 0) }, wasPushed, true},
		"a newer vacancy":            {func(*RaceEntry) *RaceEntry { return vacant(9) }, wasPushed, true},
		"an older leader":            {func(*RaceEntry) *RaceEntry { return held(2, 0) }, wasRead, false},
		"its own record":             {func(won *RaceEntry) *RaceEntry { return won.Clone() }, wasRead, false},
		"a request":                  {func(won *RaceEntry) *RaceEntry { return asked(won, "c") }, wasPushed, false},
		"a release by another":       {func(won *RaceEntry) *RaceEntry { return vacant(4, by(won.Incarnation), extended(1)) }, wasRead, true},
		"a clone's extension":        {func(won *RaceEntry) *RaceEntry { r := won.Clone(); r.Extension, r.WriteID = 1, "clone"; return r }, wasRead, true},
		"a clone's acquisition":      {func(won *RaceEntry) *RaceEntry { r := won.Clone(); r.WriteID = "clone"; return r }, wasRead, true},
		"a clone's in the same tick": {func(won *RaceEntry) *RaceEntry { r := won.Clone(); r.WriteID, r.Token = "clone", nil; return r }, wasRead, true},
		"with the same numbers": {func(won *RaceEntry) *RaceEntry {
			r := won.Clone()
			r.Extension, r.TermExpiry = 1, r.TermExpiry.Add(1)
			return r
		}, wasRead, true},
		"another of the same number": {func(won *RaceEntry) *RaceEntry { return held(won.ElectionNumber, 0) }, wasRead, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, won := elected(t)
			p.learn(c.of(won), c.how, at(1), at(1))
			if c.lost {
				p.endedBy(ErrOusted)
				return
			}
			p.liveUntil(tT - tS)
		})
	}
	rows{
		"stamps of another's prove nothing": func(t *testing.T) {
			p := newPlay(t)
			if p.reads(lands(held(3, 0), 2*time.Hour+1), at(0)); p.mistrust {
				t.Error("the store's clock may have been wrong when it was written")
			}
		},
		"another of the same number, though older than its extension": func(t *testing.T) {
			p, won := elected(t)
			p.written(at(tT/2), OpExtend)
			p.reads(held(won.ElectionNumber, 0), at(tT/2))
			p.endedBy(ErrOusted)
		},
		"a record that the store has lost is put back": func(t *testing.T) {
			for _, lost := range []*RaceEntry{vacant(1), vacant(1, reserved("c", time.Hour)), vacant(1, hold(time.Hour)), {}} {
				p, won := elected(t)
				p.reads(lost, at(2))
				p.due(at(3), leads, "")
				if r := p.begins(at(tT/2), leads, OpExtend); r.ElectionNumber != won.ElectionNumber || r.Extension != 1 || !sameVersion(r.Token, lost.Token) {
					t.Errorf("%+v over %+v", r, lost)
				}
			}
		},
		"but not over one who leads by what it shows": func(t *testing.T) {
			p, _ := elected(t)
			p.reads(held(2, 0), at(2))
			p.due(at(tT/2), leads, OpRead)
		},
		"nor over one who may, though it shows another now": func(t *testing.T) {
			p, _ := elected(t)
			p.reads(held(2, 0), at(1))
			p.reads(vacant(1), at(2))
			p.due(at(tT/2), leads, OpRead)
		},
		"an extension that was overtaken is nothing new": func(t *testing.T) {
			p, won := elected(t)
			p.written(at(tT/2), OpExtend)
			p.reads(won, at(tT/2+1)) // a replica that lags
			p.liveUntil(tT/2 + tT - tS)
		},
		"stamps that show a wrong clock": func(t *testing.T) {
			p, _ := elected(t)
			r := p.begins(at(tT/2), leads, OpExtend)
			p.answers(lands(r, tT/2+5*time.Second+1), wasWritten, at(tT/2), at(tT/2))
			p.endedBy(ErrClockSkew)
			p.due(at(tT/2), leads, OpRelease)
		},
		"not if the record is marked": func(t *testing.T) {
			p := newPlay(t)
			p.bounded(time.Hour)
			p.reads(vacant(3), at(0))
			p.reads(vacant(3), at(tT+tD))
			won := p.begins(at(tT+tD), leads, OpAcquire)
			p.answers(lands(won, time.Hour+1), wasWritten, at(tT+tD), at(tT+tD))
			if p.lead == nil || !won.Unsynchronized {
				t.Fatalf("%v, %+v", p.ended, won)
			}
			p.bounded(0)
			now := at(tT + tD + tT/2)
			r := p.begins(now, leads, OpExtend)
			if p.answers(lands(r, tT+tD+tT/2+1), wasWritten, now, now); p.lead == nil || p.mistrust || !r.Unsynchronized {
				t.Errorf("%v, mistrust %t, %+v", p.ended, p.mistrust, r)
			}
		},
		"over one whose term is over": func(t *testing.T) {
			p, _ := elected(t)
			p.reads(held(2, -tT-tS), at(2))
			p.due(at(tT/2), leads, OpExtend)
		},
		"over what is reserved for another": func(t *testing.T) {
			p, _ := elected(t)
			p.reads(vacant(1, reserved("c", time.Hour)), at(2))
			p.due(at(tT/2), leads, OpExtend)
		},
	}.run(t)
}

// Rule 9: first the work ends, then the view, then the record is released.
func TestLeaseRule9Leave(t *testing.T) {
	rows{
		"a request to hand over is heard": func(t *testing.T) {
			p, won := elected(t)
			p.answers(asked(won, "c"), wasPushed, at(tS), at(tS))
			if p.lead == nil || p.lead.asked != "c" {
				t.Errorf("%+v", p.lead)
			}
		},
		"one to go on is none": func(t *testing.T) {
			p, won := elected(t)
			p.reads(asked(won, "a"), at(tS))
			if r := p.begins(at(tT/2), leads, OpExtend); p.lead.asked != "" || r.Successor != "" {
				t.Errorf("asked for %q, written is %+v", p.lead.asked, r)
			}
		},
		"who does not lead": func(t *testing.T) {
			p := newPlay(t)
			p.leave(ErrResigned)
			p.endedBy(nil)
		},
		"what another has written by the same order is not its own": func(t *testing.T) {
			p, won := elected(t)
			p.reads(held(won.ElectionNumber, tS), at(tS)) // the store was set back in between
			p.endedBy(ErrOusted)
			p.due(at(tS), wish{}, "")
		},
		"in that order": func(t *testing.T) {
			p, won := elected(t)
			p.due(at(1), wish{}, "") // the view lives
			p.leave(ErrResigned)
			p.due(at(1), wish{work: true}, "")
			if !p.holds(at(1)) {
				t.Error("it has it")
			}
			if r := p.begins(at(1), wish{}, OpRelease); !r.Vacant() || r.Unsynchronized || r.ElectionNumber != won.ElectionNumber || r.Extension != 1 || r.Incarnation != won.Incarnation || r.WriteID != "" || r.Hold != 0 {
				t.Errorf("%+v", r)
			}
		},
		"the lease is kept while work winds down": func(t *testing.T) {
			p, _ := elected(t)
			p.due(at(tT/2), wish{keep: true, extend: tT / 2}, OpExtend)
		},
		"who is released begins nothing by it": func(t *testing.T) {
			p, won := elected(t)
			p.leave(ErrResigned)
			r := p.begins(at(1), wish{}, OpRelease)
			p.answers(lands(r), wasWritten, at(1), at(1))
			p.reads(won, at(2))
			if p.lead != nil || p.holds(at(2)) {
				t.Error("it leads, or holds, by what it has given back")
			}
		},
		"a Successor has it reserved for a term": func(t *testing.T) {
			p, won := elected(t)
			p.reads(asked(won, "c"), at(1))
			p.leave(ErrResigned)
			if r := p.begins(at(2), wish{}, OpRelease); r.Successor != "c" || !r.TermExpiry.Equal(zero.Add(2+tT)) {
				t.Errorf("%+v", r)
			}
		},
		"anybody has not": func(t *testing.T) {
			p, won := elected(t)
			p.reads(asked(won, AnySuccessor), at(1))
			p.leave(ErrResigned)
			if r := p.begins(at(2), wish{}, OpRelease); r.Successor != "" || !r.TermExpiry.Equal(zero.Add(2)) {
				t.Errorf("%+v", r)
			}
		},
		"a request stays on record until it is granted": func(t *testing.T) {
			p, won := elected(t)
			p.reads(asked(won, "c"), at(1))
			if r := p.begins(at(tT/2), leads, OpExtend); r.Successor != "c" || r.Extension != 2 {
				t.Errorf("%+v", r)
			}
		},
		"a Hold outlives the release": func(t *testing.T) {
			p, won := elected(t, holding(time.Minute))
			p.reads(asked(won, "c"), at(1))
			p.leave(ErrResigned)
			r := p.begins(at(tS), wish{}, OpRelease)
			if won.Hold != time.Minute-tT || r.Hold != time.Minute-tS || r.Successor != "" {
				t.Errorf("%v, then %+v", won.Hold, r)
			}
			p.answers(lands(r), wasWritten, at(tS), at(tS))
			p.due(at(time.Minute+tS-1), leads, "") // it binds the one who led as well
			p.due(at(time.Minute+tS), leads, OpRead)
		},
		"it begins with the acquisition, however late the answer": func(t *testing.T) {
			p, won := acquiring(t, holding(time.Minute))
			p.answers(lands(won), wasWritten, at(0), at(2*tS))
			p.leave(ErrResigned)
			if r := p.begins(at(3*tS), wish{}, OpRelease); r.Hold != time.Minute-3*tS {
				t.Errorf("%+v", r)
			}
		},
		"a later leadership that begins nothing ends none": func(t *testing.T) {
			p, _ := elected(t, holding(time.Minute))
			p.look(at(tT))
			p.written(at(tT), OpAcquire)
			p.refuse(ErrResigned)
			if r := p.begins(at(tT+tS), wish{}, OpRelease); r.Hold != time.Minute-tT-tS {
				t.Errorf("%+v", r)
			}
		},
		"and bears no mark, though its clock is wrong": func(t *testing.T) {
			p, _ := elected(t, holding(time.Minute))
			p.bounded(time.Hour)
			if r := p.begins(at(tS), leads, OpRelease); r.Hold != time.Minute-tS || r.Unsynchronized {
				t.Errorf("%+v", r)
			}
		},
		"a job that was not begun has none": func(t *testing.T) {
			p, _ := elected(t, holding(time.Minute))
			p.dropHold()
			if r := p.begins(at(tT/2), leads, OpExtend); r.Hold != 0 {
				t.Errorf("%+v", r)
			}
			p.leave(ErrResigned)
			if r := p.vacancy(at(tT / 2)); r.Hold != 0 {
				t.Errorf("%+v", r)
			}
			p, _ = elected(t, holding(time.Minute))
			p.leave(ErrResigned)
			p.dropHold()
			if r := p.vacancy(at(tT / 2)); r.Hold != 0 {
				t.Errorf("dropped when it had left: %+v", r)
			}
		},
		"an extension has one until S after its end": func(t *testing.T) {
			p, _ := elected(t, holding(tT/2))
			if r := p.begins(at(tT/2+tS-1), leads, OpExtend); r.Hold != 1 {
				t.Errorf("%+v", r)
			}
		},
		"a vacancy is dated by one's own clock": func(t *testing.T) {
			p, _ := elected(t, holding(time.Minute))
			p.leave(ErrResigned)
			p.offset = time.Hour // by a stamp of the store
			if r := p.begins(at(tS), wish{}, OpRelease); !r.TermExpiry.Equal(zero.Add(tS)) {
				t.Errorf("%+v", r)
			}
		},
		"and one that is over lasts for S": func(t *testing.T) {
			p, _ := elected(t, holding(1))
			p.leave(ErrResigned)
			for d, want := range map[time.Duration]time.Duration{1: 1, tS: 1, tS + 1: 0} {
				if r := p.vacancy(at(d)); r.Hold != want {
					t.Errorf("released after %v with a Hold of %v, want %v", d, r.Hold, want)
				}
			}
		},
		"a vacancy is marked by who compares no clocks": func(t *testing.T) {
			p, _ := elected(t, measures)
			p.leave(ErrResigned)
			if r := p.begins(at(1), wish{}, OpRelease); !r.Unsynchronized {
				t.Errorf("%+v", r)
			}
		},
		"nor an older state of its own, if another has led since": func(t *testing.T) {
			p, won := elected(t)
			p.reads(held(5, tT), at(1))
			p.endedBy(ErrOusted)
			p.reads(won, at(2)) // the store was set back
			p.due(at(2), wish{}, "")
		},
		"nothing of others is released": func(t *testing.T) {
			p := newPlay(t)
			p.reads(held(3, 0), at(0))
			p.due(at(1), wish{}, "")
		},
		"a request that its own writes have overtaken is not heard": func(t *testing.T) {
			p, won := elected(t)
			for _, d := range []time.Duration{tT / 2, tT} {
				p.written(at(d), OpExtend)
			}
			if p.reads(asked(won, "c"), at(tT)); p.lead.asked != "" {
				t.Errorf("asked for %q", p.lead.asked)
			}
		},
		"one on a record that it puts its own over is not for it": func(t *testing.T) {
			p, _ := elected(t)
			p.reads(vacant(1, reserved("c", -tT)), at(1))
			if r := p.begins(at(tT/2), leads, OpExtend); r.Successor != "" {
				t.Errorf("%+v", r)
			}
		},
		"nor one on the record of its last leadership": func(t *testing.T) {
			p, won := elected(t)
			p.leave(ErrResigned)
			p.written(at(1), OpAcquire)
			p.reads(asked(won, "c"), at(2)) // the store was set back
			if r := p.begins(at(tT/2+1), leads, OpExtend); r.Successor != "" {
				t.Errorf("%+v", r)
			}
		},
		"unless it is given up, by the leader or after": func(t *testing.T) {
			for _, leads := range []bool{true, false} {
				p, begin := newPlay(t, holding(time.Minute)), instant{wall: zero}
				p.reads(vacant(3), begin)
				p.answers(lands(p.begins(begin, wish{lead: true}, OpAcquire)), wasWritten, begin, begin)
				if leads {
					p.dropHold()
				}
				if p.leave(ErrResigned); !leads {
					p.dropHold()
				}
				if r := p.begins(begin, wish{}, OpRelease); r.Hold != 0 {
					t.Errorf("leads %t: %v", leads, r.Hold)
				}
			}
		},
		"an extension has what is left of it": func(t *testing.T) {
			p, _ := elected(t, holding(time.Minute))
			if r := p.begins(at(tT/2), leads, OpExtend); r.Hold != time.Minute-tT/2-tT {
				t.Errorf("%v", r.Hold)
			}
		},
		"one that begins with the release is in nothing before": func(t *testing.T) {
			p, won := elected(t, func(p *policy) { p.hold, p.holdsLate = time.Minute, true })
			r := p.written(at(tT/2), OpExtend)
			p.leave(ErrResigned)
			if left := p.begins(at(tT/2), wish{}, OpRelease); won.Hold != 0 || r.Hold != 0 || left.Hold != time.Minute-tT/2 {
				t.Errorf("%v, %v, then %v", won.Hold, r.Hold, left.Hold)
			}
		},
		"and by who mistrusts its clock, unless a Hold ends by it": func(t *testing.T) {
			for hold, marked := range map[time.Duration]bool{0: true, time.Minute: false} {
				p, _ := elected(t, holding(hold))
				p.bounded(time.Hour)
				if r := p.begins(at(1), leads, OpRelease); r.Unsynchronized != marked {
					t.Errorf("%+v", r)
				}
			}
		},
	}.run(t)
}

// A lease remembers no more writes than a term and a half have.
func TestLeaseWritesAreFew(t *testing.T) {
	p, _ := elected(t)
	w := wish{lead: true, keep: true, extend: tT / 20}
	for i := range 1000 {
		now := at(time.Duration(i+1) * tT / 20)
		r := p.begins(now, w, OpExtend)
		p.answers(lands(r), wasWritten, now, now)
	}
	if len(p.writes) > 24 {
		t.Errorf("%d writes are remembered", len(p.writes))
	}
	for i := range 100 { // a driver that writes at once, again and again
		p.issue(at(1000*tT/20), OpExtend, fmt.Sprint("more", i), "")
	}
	if len(p.writes) != maxWrites {
		t.Errorf("%d writes are remembered", len(p.writes))
	}
	if p.reads(p.writes[maxWrites-1].of, at(1000*tT/20)); p.measuring(at(1000*tT/20)) || !p.mine(p.base.of) {
		t.Error("the last record is its own, and not measured")
	}
}
