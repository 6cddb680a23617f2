// Package spec says which steps an election's record may take: an executable specification,
// which knows the package documentation of leaderelection and nothing of its code. Simulations and
// tests with real processes hold every write that landed to it.
//
// It judges by true time, which the tests know: a write is told with the moment at which it began.
// By then its writer had looked at its clock.
package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Entry is the record.
type Entry = leaderelection.RaceEntry

// Record is an election's record as it changes. The zero Record is an empty one, in an
// election whose clocks are all right. It is not safe for concurrent use.
type Record struct {
	// Skew is how far wall clocks are from true time at most.
	Skew time.Duration
	// Drift is what two monotonic clocks run apart in a term at most. It is allowed for before a
	// leader's term is taken, and not before a reservation is.
	Drift time.Duration
	// Untimed leaves out what depends on clocks: they are not within their bounds.
	Untimed bool

	now      Entry
	began    time.Time // the write that it is, or whose term it bears
	greatest leaderelection.ElectionNumber
	led      map[led]Entry        // the last that each leadership wrote
	held     map[led]span         // for how long each keeps the record
	back     bool                 // the store was set back: what leads may not be on record
	died     map[string]time.Time // when the processes of incarnations have died, of which there is proof
}

// span is a stretch of true time.
type span struct{ from, until time.Time }

type led struct {
	number      leaderelection.ElectionNumber
	incarnation string
}

// SetBack tells that the store was set back to an earlier record.
func (r *Record) SetBack(e *Entry) {
	r.now, r.began, r.greatest, r.back = *e.Clone(), time.Time{}, e.ElectionNumber, true
}

// Died tells that the process of an incarnation has died, and that any writer may have proof of it.
func (r *Record) Died(at time.Time, incarnation string) {
	r.died = maps.Clone(r.died)
	if r.died == nil {
		r.died = map[string]time.Time{}
	}
	r.died[incarnation] = at.Round(0)
}

// ofTheDead reports whether who held the present record was dead when a write began.
func (r *Record) ofTheDead(began time.Time) bool {
	at, dead := r.died[r.now.Incarnation]
	return dead && !r.now.Vacant() && !began.Before(at)
}

// Landed tells that a write which began at a true time has landed over the present record. It returns
// what is wrong with it, and takes it in all the same.
func (r *Record) Landed(began time.Time, e *Entry) error {
	began, fault := r.step(began.Round(0), e)
	if fault != nil {
		fault = fmt.Errorf("%s over %s: %w", describe(e), describe(&r.now), fault)
	}
	// An operator's request leaves the term as it is. If it is lost, the leader may never have seen it.
	asked := e.TermExpiry.Equal(r.now.TermExpiry) && e.ElectionNumber == r.now.ElectionNumber && e.Incarnation == r.now.Incarnation && e.WriteID == r.now.WriteID
	r.now, r.began = *e.Clone(), began
	r.greatest = max(r.greatest, e.ElectionNumber)
	if !e.Vacant() && e.Extension == 0 && e.Hold > time.Nanosecond { // which is one that ends within the term
		r.held = maps.Clone(r.held)
		if r.held == nil {
			r.held = map[led]span{}
		}
		r.held[led{e.ElectionNumber, e.Incarnation}] = span{began, began.Add(e.TermLength + e.Hold)}
	}
	if !e.Vacant() && !asked {
		r.led = maps.Clone(r.led) // traces are tried in more than one way
		if r.led == nil {
			r.led = map[led]Entry{}
		}
		r.led[led{e.ElectionNumber, e.Incarnation}] = r.now
	}
	return fault
}

// step is when the term that e bears began, and what is wrong with the step to e.
func (r *Record) step(began time.Time, e *Entry) (time.Time, error) {
	old := &r.now
	sameLeadership := e.ElectionNumber == old.ElectionNumber && e.Incarnation == old.Incarnation && !old.Vacant()
	switch {
	case e.Compare(old) <= 0:
		return began, errors.New("it does not raise (ElectionNumber, Extension)")
	case e.TermLength <= 0:
		return began, fmt.Errorf("its TermLength is %v", e.TermLength)
	case !maps.Equal(e.Extra, old.Extra):
		return began, errors.New("unknown fields are not handed on")
	case sameLeadership && !e.Vacant() && e.TermExpiry.Equal(old.TermExpiry) && e.WriteID == old.WriteID && e.Successor != old.Successor:
		return r.began, request(old, e)
	case e.Vacant() != (e.WriteID == "") || !e.Vacant() && e.WriteID == old.WriteID:
		return began, fmt.Errorf("its WriteID is %q", e.WriteID)
	case e.Vacant() && old.Vacant():
		return began, reservation(old, e)
	case e.Vacant():
		return began, r.release(began, e, sameLeadership)
	case sameLeadership:
		return began, r.extension(began, old, e)
	case e.Extension > 0:
		return began, r.extensionOverLost(began, e)
	}
	return began, r.acquisition(began, e)
}

// request: an operator's, which takes nothing from the leader.
func request(old, e *Entry) error {
	asked := *old.Clone()
	asked.Extension, asked.Successor, asked.Token = e.Extension, e.Successor, e.Token
	switch {
	case e.Successor == "" && old.Successor == e.LeaderID:
		return nil // the leader's own extension, without the request that it lead
	case e.Successor == "":
		return errors.New("a request is forgotten")
	case !equal(&asked, e):
		return errors.New("a request changes more than Extension and Successor")
	}
	return nil
}

// reservation: an operator's, on a vacant record.
func reservation(old, e *Entry) error {
	switch {
	case old.Hold > 0:
		return errors.New("a vacancy on hold is reserved")
	case old.ElectionNumber == leaderelection.NoElections:
		return errors.New("it is reserved before anybody has led")
	case e.ElectionNumber != old.ElectionNumber || e.Incarnation != old.Incarnation:
		return errors.New("a reservation changes whose vacancy it is")
	case e.Successor == "" || e.Successor == leaderelection.AnySuccessor:
		return errors.New("a vacant record is written again, and reserved for nobody")
	}
	return nil
}

// release: only of the writer's own leadership, so not of one whose process is dead. It is reserved for the
// successor that was asked for.
func (r *Record) release(began time.Time, e *Entry, own bool) error {
	old, reserve := &r.now, ""
	if s := old.Successor; e.Hold == 0 && s != leaderelection.AnySuccessor && s != old.LeaderID {
		reserve = s
	}
	latest, earliest := began.Add(r.Skew), r.began.Add(-r.Skew)
	if reserve != "" {
		latest, earliest = latest.Add(e.TermLength), earliest.Add(e.TermLength)
	}
	timed := !r.Untimed && !e.Unsynchronized
	short := r.releaseShort(began, e)
	switch {
	case !own || r.ofTheDead(began):
		return errors.New("it releases what is not its own")
	case short > 0:
		return fmt.Errorf("its hold ends %v too early", short)
	case e.Successor != reserve:
		return fmt.Errorf("it is reserved for %q, want %q", e.Successor, reserve)
	case timed && e.TermExpiry.After(latest):
		return fmt.Errorf("the vacancy is %v too late", e.TermExpiry.Sub(latest))
	case timed && !r.began.IsZero() && e.TermExpiry.Before(earliest):
		return fmt.Errorf("the vacancy is %v too early", earliest.Sub(e.TermExpiry))
	}
	return nil
}

// extension: the same leadership, for longer.
func (r *Record) extension(began time.Time, old, e *Entry) error {
	limit := began.Add(e.TermLength + r.Skew)
	if e.Unsynchronized {
		limit = e.TermExpiry // it names the write
	}
	switch {
	case e.LeaderID != old.LeaderID || e.TermLength != old.TermLength || e.Unsynchronized != old.Unsynchronized:
		return errors.New("an extension changes who leads, and how")
	case e.TermExpiry.Before(old.TermExpiry):
		return fmt.Errorf("the term shrinks by %v", old.TermExpiry.Sub(e.TermExpiry))
	case !r.Untimed && e.TermExpiry.After(limit) && !e.TermExpiry.Equal(old.TermExpiry):
		return fmt.Errorf("the term ends %v too late", e.TermExpiry.Sub(limit))
	case r.holdShort(began, e, e.ElectionNumber) > 0:
		return fmt.Errorf("its hold ends %v too early", r.holdShort(began, e, e.ElectionNumber))
	case e.Successor != old.Successor && old.Successor != e.LeaderID:
		return fmt.Errorf("the request for %q becomes one for %q", old.Successor, e.Successor)
	}
	return nil
}

// holdShort is by how much the write e lets the hold of its candidate's leadership n end too early.
// The rest of it counts from when e was asked for, at the latest now, on the leader's monotonic clock.
func (r *Record) holdShort(began time.Time, e *Entry, n leaderelection.ElectionNumber) time.Duration {
	hold, any := r.held[led{n, e.Incarnation}]
	if !any || r.Untimed {
		return 0
	}
	rest := e.Hold
	if !e.Vacant() {
		rest += e.TermLength
	}
	slack := time.Duration(float64(r.Drift) * float64(began.Sub(hold.from)) / float64(e.TermLength))
	return hold.until.Sub(began) - rest - slack
}

// releaseShort is the same of a release. What was never extended may have led to nothing: then the hold
// of the leadership before is the one to be kept, if that one's leader is the same and took its
// own record.
func (r *Record) releaseShort(began time.Time, e *Entry) time.Duration {
	before := func(n leaderelection.ElectionNumber) (last leaderelection.ElectionNumber) {
		for l := range r.held {
			if l.incarnation == e.Incarnation && l.number < n {
				last = max(last, l.number)
			}
		}
		return last
	}
	for n := e.ElectionNumber; n > leaderelection.NoElections; n = before(n) {
		short := r.holdShort(began, e, n)
		if short <= 0 || r.led[led{n, e.Incarnation}].Extension > 0 {
			return short
		}
	}
	if e.Hold == 0 { // none of them led
		return 0
	}
	return r.holdShort(began, e, e.ElectionNumber)
}

// extensionOverLost: a leader goes on where a store that was set back has lost its record, unless
// another may lead by what the store has.
func (r *Record) extensionOverLost(began time.Time, e *Entry) error {
	last, known := r.led[led{e.ElectionNumber, e.Incarnation}]
	switch {
	case !known || !r.back:
		return errors.New("it extends what is not its own")
	case e.Compare(&last) <= 0:
		return errors.New("it does not raise what its leadership has written")
	}
	// Nobody leads by a vacancy, and it knows of its own earlier leaderships.
	if early := r.early(began, e); early > 0 && !r.now.Vacant() && r.now.LeaderID != e.LeaderID {
		return fmt.Errorf("it extends over what another may lead by, %v too early", early)
	}
	last.Successor = e.Successor // it was on the record that was lost
	return r.extension(began, &last, e)
}

// acquisition: a new leadership.
func (r *Record) acquisition(began time.Time, e *Entry) error {
	switch {
	case e.ElectionNumber <= r.greatest:
		return fmt.Errorf("its number is not greater than %d", r.greatest)
	case r.now.ElectionNumber == leaderelection.NoElections && !r.Untimed && !e.Unsynchronized && e.ElectionNumber < born(began.Add(-r.Skew-time.Second)):
		return fmt.Errorf("a first number that is less than the seconds since 1970, which are %d", born(began))
	case e.LeaderID == leaderelection.AnySuccessor || e.Incarnation == "":
		return errors.New("nobody may lead by that name")
	case e.Successor != "":
		return errors.New("an acquisition keeps a request")
	case !r.Untimed && !e.Unsynchronized && e.TermExpiry.Sub(began) > e.TermLength+r.Skew:
		return fmt.Errorf("the term ends %v too late", e.TermExpiry.Sub(began)-e.TermLength-r.Skew)
	}
	if early := r.early(began, e); early > 0 {
		return fmt.Errorf("it is acquired %v too early", early)
	}
	return nil
}

// born is the number of a time.
func born(at time.Time) leaderelection.ElectionNumber {
	return leaderelection.ElectionNumber(max(at.Unix(), 0))
}

// early is for how much longer the record is not e's to take. A challenger's clock shows at most began
// and Skew, and must show TermExpiry and MaxClockSkew, which is not less. Where they are not
// compared, it has seen the term for its length. A Hold is added to either, and binds also where a
// vacancy would be free; that of a vacancy counts from when it was seen, if that is sooner.
func (r *Record) early(began time.Time, e *Entry) time.Duration {
	old := &r.now
	seen := time.Duration(-1) // where the store was set back, nobody knows since when
	if !r.began.IsZero() {
		seen = old.TermLength - began.Sub(r.began)
		switch {
		case old.Hold > 0 && old.Vacant():
			seen = old.Hold - began.Sub(r.began)
		case old.Hold > 0:
			seen += old.Hold
		}
	}
	byTerm := old.TermExpiry.Add(old.Hold).Sub(began)
	switch {
	case r.Untimed:
		return 0
	case old.Incarnation == e.Incarnation && !old.Vacant(), old.Hold == 0 && r.ofTheDead(began):
		return 0
	case old.Vacant() && old.Hold > 0 && (old.Unsynchronized || e.Unsynchronized):
		return seen
	case old.Vacant() && old.Hold > 0:
		return min(seen, byTerm)
	case old.Vacant() && (old.Successor == "" || old.Successor == leaderelection.AnySuccessor || old.Successor == e.LeaderID):
		return 0
	case old.Vacant() && (old.Unsynchronized || e.Unsynchronized):
		return seen - r.Drift
	case old.Vacant():
		return min(seen, byTerm-r.Skew)
	case old.Unsynchronized || e.Unsynchronized:
		return seen
	}
	return byTerm
}

// equal reports whether all that is stored of a and b is the same.
func equal(a, b *Entry) bool {
	return a.Compare(b) == 0 && a.LeaderID == b.LeaderID && a.Incarnation == b.Incarnation && a.WriteID == b.WriteID && a.Successor == b.Successor &&
		a.TermExpiry.Equal(b.TermExpiry) && a.TermLength == b.TermLength && a.Unsynchronized == b.Unsynchronized && a.Hold == b.Hold &&
		a.Priority == b.Priority && slices.Equal(a.HostPort, b.HostPort) && slices.Equal(a.ConnectionParams, b.ConnectionParams) &&
		maps.Equal(a.Extra, b.Extra)
}

func describe(e *Entry) string {
	who := "vacant"
	if !e.Vacant() {
		who = e.LeaderID
	}
	s := fmt.Sprintf("%d.%d %s until %s", e.ElectionNumber, e.Extension, who, e.TermExpiry.Format("15:04:05.000000"))
	if e.Successor != "" {
		s += " for " + e.Successor
	}
	return s
}

// Write is a write that somebody has made.
type Write struct {
	By    string    // for messages
	Began time.Time // true time
	Entry Entry
	Sure  bool // it has landed; else it may have
}

// Check returns what is wrong with the writes that several processes made of one record, from an empty
// one on, in any order; nil if the rules allow them. Of writes whose outcome is not known, any may
// have landed: there must be a choice of them with which all that landed are allowed.
func Check(start Record, writes []Write) error {
	writes = slices.Clone(writes)
	slices.SortStableFunc(writes, func(a, b Write) int {
		return cmp.Or(a.Entry.Compare(&b.Entry), a.Began.Compare(b.Began))
	})
	budget := 100_000 // steps: tests give up only a few calls
	return check(start, writes, &budget)
}

func check(r Record, writes []Write, budget *int) error {
	for i, w := range writes {
		if *budget--; *budget < 0 {
			return fmt.Errorf("too many writes have an unknown outcome")
		}
		with := r
		err := with.Landed(w.Began, &w.Entry)
		if w.Sure {
			if err != nil {
				return fmt.Errorf("%s: %w", w.By, err)
			}
			r = with
			continue
		}
		if err == nil && check(with, writes[i+1:], budget) == nil {
			return nil
		}
	}
	return nil
}
