package leaderelection

import "time"

// instant is one look at both clocks of a machine.
type instant struct {
	wall time.Time     // without a monotonic reading, to be compared with other machines' times
	mono time.Duration // elapsed since the loop began, whatever is done to the wall clock
}

// viewEnd is when a view ends: as soon as one of its two clocks has reached its part.
type viewEnd struct {
	wall  time.Time     // without a monotonic reading
	mono  time.Duration // by the timekeeper's elapsed time
	early time.Duration // how much sooner than wall the wall clock ends it: see tighten
	apart time.Duration // by how much more the wall clock may show as left than the monotonic clock does; 0: any
}

// live reports whether the view's leader may act: both clocks are still before the end. If the wall clock
// was set back by more than apart, a machine that is suspended later would go unnoticed.
func (v *viewEnd) live(at instant) bool {
	mono := v.mono - at.mono
	if v.apart == 0 {
		return mono > 0 && at.wall.Before(v.wall) // and nothing is early: each act of a leader asks this
	}
	wall := v.wall.Sub(at.wall) - v.early
	return wall > 0 && mono > 0 && wall-mono <= v.apart
}

// tighten brings the end of a measured view forward by what the wall clock says was lost.
//
// If the wall clock has run ahead, the machine was suspended, and the monotonic clock stood still. That
// must count now, since a later set-back of the wall clock would hide it. If the wall clock was set
// back by no more than apart, the end by it comes earlier by as much, so that a later suspend shows. If it
// was set back further, the view ends now.
func (v viewEnd) tighten(at instant) viewEnd {
	lost := (v.mono - at.mono) - (v.wall.Sub(at.wall) - v.early)
	switch {
	case v.apart == 0:
	case lost > 0:
		v.mono -= lost
	case -lost > v.apart:
		v.mono = at.mono
	default:
		v.early -= lost
	}
	return v
}

// alarm collects the moments at which a loop must look again, and keeps the earliest.
type alarm struct {
	now instant
	in  time.Duration
}

func newAlarm(now instant) alarm { return alarm{now: now, in: time.Hour} }

// at sets the alarm for an elapsed time.
func (a *alarm) at(mono time.Duration) { a.in = min(a.in, max(mono-a.now.mono, 0)) }

// later sets the alarm for an elapsed time that has not passed.
func (a *alarm) later(mono time.Duration) {
	if mono > a.now.mono {
		a.at(mono)
	}
}

// atWall sets the alarm for a wall time. The loop looks again within the hour in any case, since
// the clock may be stepped.
func (a *alarm) atWall(wall time.Time) { a.in = min(a.in, max(wall.Sub(a.now.wall), 0)) }

// until sets the alarm for the end of a claim.
func (a *alarm) until(e end) {
	if e.reached(a.now) {
		return
	}
	if e.mono != 0 {
		a.at(e.mono)
	}
	if !e.wall.IsZero() {
		a.atWall(e.wall)
	}
}
