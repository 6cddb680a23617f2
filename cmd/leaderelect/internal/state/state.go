// Package state says what a record means to people and to programs that are not
// written in Go.
package state

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/c8e606e4/leaderelection"
)

// The values of State.State.
const (
	Led    = "led"    // somebody leads
	Vacant = "vacant" // nobody does: it was given up
	Lapsed = "lapsed" // nobody does: the term ran out unextended
	None   = "none"   // nobody ever has
	// Unknown: somebody held the record when it was last written. Its clock must not
	// be compared with others, or is wrong (see Ahead), so whether that term still
	// runs is seen only by looking for a while.
	Unknown = "unknown"
)

// State is a record, as JSON.
type State struct {
	State    string   `json:"state"`
	LeaderID string   `json:"leader_id"`
	Token    uint64   `json:"token"` // the fencing token
	HostPort []string `json:"host_port,omitempty"`
	Params   string   `json:"params,omitempty"`        // if they are text
	Binary   []byte   `json:"params_base64,omitempty"` // if they are not
	// TermExpiry is when the term of LeaderID ends, or has ended.
	TermExpiry time.Time `json:"term_expiry,omitzero"`
	// ReservedUntil is until when a vacant record is kept for Successor.
	ReservedUntil time.Time `json:"reserved_until,omitzero"`
	// ReleasedAt is when a vacant record was given up that is kept for nobody.
	ReleasedAt time.Time `json:"released_at,omitzero"`
	Term       float64   `json:"term_seconds,omitempty"`
	Left       float64   `json:"seconds_left"` // of the term; 0 if it is over
	Extension  uint64    `json:"extension"`
	// HoldUntil is until when nobody else may lead, whether it is led or vacant.
	HoldUntil time.Time `json:"hold_until,omitzero"`
	// Since is about when the leadership began: the record does not say, and it is
	// worked out from the number of extensions, by the pace that is taken for the leader's.
	// Zero while not led.
	Since     time.Time `json:"since_about,omitzero"`
	Successor string    `json:"successor,omitempty"`
	// Unsynchronized: the writer's wall clock must not be compared with others,
	// so there is no TermExpiry. Left is counted from when the record was seen to
	// change, and so is more than what is left in truth.
	Unsynchronized bool `json:"unsynchronized,omitempty"`
	// Place is where the record is, as the store has resolved its URL. Only who has just opened
	// it says so.
	Place string `json:"place,omitempty"`

	ahead bool // TermExpiry is Ahead
}

// Of is what e means at the wall time now, for clocks that are within skew, and leaders that extend
// their lease after every; zero: after half of the term less skew.
func Of(e *leaderelection.RaceEntry, now time.Time, skew, every time.Duration) State {
	s := State{
		LeaderID: e.LeaderID, Token: uint64(e.ElectionNumber), HostPort: e.HostPort, TermExpiry: e.TermExpiry,
		Term: e.TermLength.Seconds(), Extension: e.Extension, Successor: e.Successor, Unsynchronized: e.Unsynchronized,
	}
	if e.Hold > 0 && !e.Unsynchronized {
		s.HoldUntil = e.TermExpiry.Add(min(e.Hold, leaderelection.MaxTermLength))
	}
	if e.Unsynchronized {
		s.TermExpiry = time.Time{}
	}
	if utf8.Valid(e.ConnectionParams) {
		s.Params = string(e.ConnectionParams)
	} else {
		s.Binary = e.ConnectionParams
	}
	left := e.TermExpiry.Sub(now)
	switch {
	case e.ElectionNumber == leaderelection.NoElections:
		s.State = None
		return s
	case e.Vacant():
		s.State = Vacant
		if s.reserved() {
			s.ReservedUntil = s.TermExpiry
		} else {
			s.ReleasedAt = s.TermExpiry
		}
		s.TermExpiry = time.Time{}
		return s
	case e.Unsynchronized, Ahead(e, now, skew):
		s.State, s.ahead = Unknown, !e.Unsynchronized
		return s
	case left <= -skew:
		s.State = Lapsed
		return s
	}
	s.State = Led
	s.Left = Seconds(left)
	if every <= 0 {
		every = (e.TermLength - skew) / 2
	}
	extended := e.Extension
	if e.Successor != "" && extended > 0 {
		extended-- // to put the request on record counted as one
	}
	s.Since = e.TermExpiry.Add(-e.TermLength - time.Duration(extended)*every).Truncate(time.Second)
	return s
}

// Ahead reports whether the term of e ends later than any clock within skew can have written by now:
// the leader's clock is wrong, or the one that says now.
func Ahead(e *leaderelection.RaceEntry, now time.Time, skew time.Duration) bool {
	return !e.Vacant() && !e.Unsynchronized && e.Hold == 0 && e.TermExpiry.Sub(now) > e.TermLength+2*skew
}

// Seconds is d in whole milliseconds, for JSON; nothing if it is over.
func Seconds(d time.Duration) float64 {
	return float64(max(d, 0).Round(time.Millisecond).Milliseconds()) / 1000
}

// Text is s in words, one fact a line.
func (s *State) Text() string {
	text := s.facts()
	if s.Place != "" {
		text += fmt.Sprintf("%-10s %s\n", "place", Name(s.Place))
	}
	return text
}

func (s *State) facts() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	const clock = time.RFC3339
	hold := func() {
		if !s.HoldUntil.IsZero() {
			line("on hold", "for everybody else until %s", s.HoldUntil.Format(clock))
		}
	}
	switch s.State {
	case None:
		line("state", "nobody has led yet")
		return b.String()
	case Vacant:
		line("state", "vacant: %s", s.vacancy())
		line("token", "%d", s.Token)
		hold()
		return b.String()
	case Lapsed:
		if s.Unsynchronized || s.ahead {
			line("state", "lapsed: %s has not extended its term", Name(s.LeaderID))
			break
		}
		line("state", "lapsed: the term of %s ran out at %s", Name(s.LeaderID), s.TermExpiry.Format(clock))
	case Unknown:
		line("state", "unknown: %s", s.untold())
	default:
		line("state", "led")
	}
	line("leader", "%s", Name(s.LeaderID))
	line("token", "%d", s.Token)
	switch {
	case s.State == Led && s.Since.IsZero():
		line("since", "%d extensions", s.Extension)
		line("time left", "%.1fs of %gs at most, unless it is extended", s.Left, s.Term)
	case s.State == Led:
		line("since", "about %s (%d extensions)", s.Since.Format(clock), s.Extension)
		line("time left", "%.1fs of %gs, unless it is extended", s.Left, s.Term)
	}
	if len(s.HostPort) > 0 {
		line("addresses", "%s", Names(s.HostPort))
	}
	switch {
	case s.Params != "":
		line("params", "%s", Name(s.Params))
	case len(s.Binary) > 0:
		line("params", "%d bytes that are no text", len(s.Binary))
	}
	hold()
	if s.Successor != "" {
		line("asked", "to %s", Request(s.Successor))
	}
	return b.String()
}

// untold is what a look at a record that is Unknown leaves open.
func (s *State) untold() string {
	why := "its clock is not compared"
	if !s.Unsynchronized {
		why = fmt.Sprintf("its term ends at %s, so its leader's clock is wrong, or this one", s.TermExpiry.Format(time.RFC3339))
	}
	return why + ", so only time tells whether the term still runs"
}

func (s *State) reserved() bool {
	return s.Successor != "" && s.Successor != leaderelection.AnySuccessor
}

func (s *State) vacancy() string {
	switch {
	case s.Unsynchronized && s.reserved():
		return fmt.Sprintf("reserved for %s, for a term of %gs", Name(s.Successor), s.Term)
	case s.Unsynchronized:
		return "given up"
	case s.reserved():
		return fmt.Sprintf("reserved for %s until %s", Name(s.Successor), s.ReservedUntil.Format(time.RFC3339))
	}
	return fmt.Sprintf("given up at %s", s.ReleasedAt.Format(time.RFC3339))
}

// Request is what a Successor asks a leader for.
func Request(successor string) string {
	if successor == leaderelection.AnySuccessor {
		return "step down"
	}
	return "hand over to " + Name(successor)
}

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

// Name is a leader's name, an address, or any other text of a record, as it may be
// shown in a line: quoted if it has what a terminal would take for commands, or what
// would make other lines of it.
func Name(s string) string {
	for _, r := range s {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return strconv.Quote(s)
		}
	}
	if strings.TrimSpace(s) != s || strings.HasPrefix(s, `"`) {
		return strconv.Quote(s)
	}
	return s
}

// Names are several, in a line.
func Names(all []string) string {
	shown := make([]string, len(all))
	for i, s := range all {
		shown[i] = Name(s)
	}
	return strings.Join(shown, " ")
}

// Printable is s, which may have several lines, with what a terminal would take for
// commands escaped.
func Printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
