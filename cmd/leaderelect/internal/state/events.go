package state

import (
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// The values of Event.Event.
const (
	Elected   = "elected"   // somebody has begun to lead, or to lead again after a lapse
	Vacancy   = "vacancy"   // it was given up
	Lapse     = "lapse"     // the term ran out unextended
	Extension = "extension" // the term was extended
)

// Event is a change of an election, as JSON.
type Event struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	State
}

// Text is e as a line.
func (e *Event) Text() string {
	at := e.Time.UTC().Format("2006-01-02T15:04:05.000Z")
	until := "until " + e.TermExpiry.UTC().Format("15:04:05.000Z")
	if e.Unsynchronized {
		until = fmt.Sprintf("for %gs", e.Term)
	}
	switch e.Event {
	case Elected:
		s := fmt.Sprintf("%s token %d: %s leads, %s", at, e.Token, Name(e.LeaderID), until)
		if e.State.State == Unknown {
			s = fmt.Sprintf("%s token %d: held by %s; %s", at, e.Token, Name(e.LeaderID), e.untold())
		}
		if len(e.HostPort) > 0 {
			s += ", at " + Names(e.HostPort)
		}
		return s
	case Vacancy:
		return fmt.Sprintf("%s token %d: over, %s", at, e.Token, e.vacancy())
	case Lapse:
		return fmt.Sprintf("%s token %d: lapsed, %s has not extended its term", at, e.Token, Name(e.LeaderID))
	}
	s := fmt.Sprintf("%s token %d: %s extended %s", at, e.Token, Name(e.LeaderID), until)
	if e.Successor != "" {
		s += ", asked to " + Request(e.Successor)
	}
	return s
}

// Follower turns what an observer is told into events. It belongs to one
// goroutine.
type Follower struct {
	// Every is how often leaders extend their lease; zero: see Of.
	Every time.Duration

	last   *leaderelection.RaceEntry
	seen   time.Time // when last was
	moved  bool      // it was not the first
	lapsed bool
}

// Changed is the event that a new record is.
func (f *Follower) Changed(e *leaderelection.RaceEntry, now time.Time, skew time.Duration) Event {
	event := Event{Time: now, Event: Extension}
	switch {
	case e.Vacant():
		event.Event = Vacancy
	case f.last == nil || f.last.ElectionNumber != e.ElectionNumber || f.last.Vacant() || f.lapsed:
		event.Event = Elected
	}
	f.moved = f.last != nil
	f.last, f.seen, f.lapsed = e, now, false
	event.State = f.Now(now, skew)
	return event
}

// Lapsed is the event that a term has run out unextended.
func (f *Follower) Lapsed(e *leaderelection.RaceEntry, now time.Time, skew time.Duration) Event {
	f.lapsed = true
	event := Event{Time: now, Event: Lapse, State: Of(e, now, skew, f.Every)}
	event.State.State, event.State.Left = Lapsed, 0
	return event
}

// Now is what is known at the time now. It may know more than the record says: of
// an unsynchronized one, whether it goes on changing.
func (f *Follower) Now(now time.Time, skew time.Duration) State {
	if f.last == nil {
		return State{State: None}
	}
	s := Of(f.last, now, skew, f.Every)
	switch {
	case s.State != Unknown:
	case f.lapsed || f.LapseIn(now, skew) <= 0:
		s.State = Lapsed
	case f.moved:
		s.State, s.Left = Led, Seconds(f.last.TermLength-now.Sub(f.seen))
	}
	return s
}

// LapseIn is how long it is until the term that is known has run out for all
// clocks within bounds, should it not be extended. None of them writes an expiry
// that is Ahead.
func (f *Follower) LapseIn(now time.Time, skew time.Duration) time.Duration {
	e, since := f.last, now.Sub(f.seen)
	if !e.Unsynchronized {
		return min(e.TermExpiry.Sub(now), e.TermLength+2*skew-since) + skew
	}
	return Unseen(e, skew) - since
}

// Unseen is for how long an unsynchronized record must not have changed for its
// term to be over: the term, and what two clocks may run apart in one.
func Unseen(e *leaderelection.RaceEntry, skew time.Duration) time.Duration {
	return e.TermLength + max(skew, e.TermLength/100)
}
