package leaderelection

import "time"

// attempt is a write of the lease whose outcome may still be open. That it happened is
// shown by a record of this Incarnation with its TermExpiry.
type attempt struct {
	kind   OpKind
	number ElectionNumber
	ext    uint64
	expiry time.Time
	begun  instant
	start  time.Duration
	end    *viewState // where the view ends, once it is confirmed
	taken  taken      // what an acquisition takes from others
	late   bool       // it can no longer begin a leadership
}

// led reports whether a record of this Incarnation came from a: it is what a wrote, or what
// an operator has added a request to since.
func (a *attempt) led(e *RaceEntry) bool {
	return a.number == e.ElectionNumber && a.ext <= e.Extension && a.expiry.Equal(e.TermExpiry)
}

// attempts are a campaign's writes of the lease whose outcome is open, in their order.
type attempts struct {
	incarnation string
	open        []attempt
	last        attempt // the last that is known to have happened
}

// match is the open write that e bears, or nil: none, or e is another's. Of several that
// asked for one term it is the first, which began before e was written in any case.
func (l *attempts) match(e *RaceEntry) *attempt {
	if e.Vacant() || e.Incarnation != l.incarnation {
		return nil
	}
	for i := range l.open {
		if a := &l.open[i]; a.led(e) {
			return a
		}
	}
	return nil
}

// origin is the write of one's own that e came from, also if that is known already, or
// nil. If the store stamps what is read, but not the answer to a write, it is known by
// now that the write happened.
func (l *attempts) origin(e *RaceEntry) *attempt {
	if !e.Vacant() && e.Incarnation == l.incarnation && l.last.led(e) {
		return &l.last
	}
	return l.match(e)
}

// settle forgets the attempts that e, which was read or written, has decided: what was
// asked for before it has happened, or will not.
func (l *attempts) settle(e *RaceEntry) {
	kept := l.open[:0]
	for _, a := range l.open {
		if a.number > e.ElectionNumber || a.number == e.ElectionNumber && a.ext > e.Extension {
			kept = append(kept, a)
		} else if a.led(e) && !l.last.led(e) {
			l.last = a
		}
	}
	l.open = kept
}

// won forgets all open writes but a, which has happened: its stamp may be told of only now.
func (l *attempts) won(a *attempt) { l.last, l.open = *a, nil }

// clear forgets all open writes.
func (l *attempts) clear() { l.open = nil }

// acquiring reports whether the outcome of an acquisition is open that could begin a leadership.
func (l *attempts) acquiring() bool {
	for i := range l.open {
		if a := &l.open[i]; a.kind == OpAcquire && !a.late {
			return true
		}
	}
	return false
}

// pending reports whether the outcome of a write is open by which the record may be one's own now:
// an acquisition that could begin a leadership, or an extension of one that has ended, for its term.
func (l *attempts) pending(wake *alarm, term time.Duration) bool {
	for i := range l.open {
		if a := &l.open[i]; a.kind == OpExtend && wake.now.mono < a.start+term {
			wake.at(a.start + term)
			return true
		}
	}
	return l.acquiring()
}

// forgetOld drops the acquisitions that can no longer begin a leadership, when nobody's view is
// alive any more that they would have taken the record from: should one still land, the
// record is one's own and is dealt with as such.
func (l *attempts) forgetOld(wake *alarm, term time.Duration) {
	kept := l.open[:0]
	for _, a := range l.open {
		if a.kind == OpAcquire {
			over := a.start + term
			if a.late = wake.now.mono >= over; !a.late {
				wake.at(over)
			} else if wake.now.mono >= a.taken.alive {
				continue
			}
		}
		kept = append(kept, a)
	}
	l.open = kept
}

// greatest is the greatest Extension that was asked for in a leadership.
func (l *attempts) greatest(number ElectionNumber) (ext uint64) {
	for i := range l.open {
		if a := &l.open[i]; a.number == number {
			ext = max(ext, a.ext)
		}
	}
	return ext
}
