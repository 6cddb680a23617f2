// Package shards is what leaderelect shards does apart from the command line: it runs a command
// for each shard that a member owns, and says what a group's records mean to people and to
// programs that are not written in Go.
package shards

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/shard"
)

// State is a group, as JSON.
type State struct {
	// Version counts the assignments; 0: there is none yet.
	Version  uint64            `json:"version"`
	Shards   int               `json:"shards"`
	Owned    int               `json:"owned"`
	Unowned  int               `json:"unowned"`           // those that nobody owns
	Moving   int               `json:"moving"`            // those whose owner is asked to let them go
	Lost     int               `json:"lost"`              // those whose owner's session is over, though it is named
	Unknown  int               `json:"unknown,omitempty"` // those of members whose seat cannot be read
	Members  []Member          `json:"members"`
	Pins     map[string]string `json:"pins,omitempty"`    // shard to member
	Drained  []string          `json:"drained,omitempty"` // members that are to be emptied
	Assigned []Shard           `json:"assignment,omitempty"`
	// Coordinator is who decides; empty: nobody, or it was not looked at.
	Coordinator string `json:"coordinator,omitempty"`
	// Unreadable are the seats whose records cannot be read: whose they are is not known.
	Unreadable []Unreadable `json:"unreadable,omitempty"`

	before bool // there were members before, and there is none now
}

// Unreadable is a seat whose record cannot be read, as JSON.
type Unreadable struct {
	Seat  int    `json:"seat"`
	Error string `json:"error"`
}

// Member is one session of a member, as JSON.
type Member struct {
	ID       string   `json:"id"`
	Seat     int      `json:"seat"`
	Session  uint64   `json:"session"`
	State    string   `json:"state"` // alive, over, or empty: it was not looked at, or cannot be read
	HostPort []string `json:"host_port,omitempty"`
	Owned    int      `json:"owned"`
	Moving   int      `json:"moving"`
	Drained  bool     `json:"drained,omitempty"`
	Weight   int      `json:"weight,omitempty"`
	Capacity int      `json:"capacity,omitempty"`
	Zone     string   `json:"zone,omitempty"`
	Left     float64  `json:"seconds_left,omitempty"`
}

// The values of Member.State.
const (
	Alive = "alive" // its session runs
	Over  = "over"  // its session has ended, or its time has run out
)

// Shard is one shard, as JSON.
type Shard struct {
	Name     string    `json:"shard"`
	Owner    string    `json:"owner"` // empty: nobody
	Token    uint64    `json:"token"` // the newest
	Moving   bool      `json:"moving,omitempty"`
	Pinned   string    `json:"pinned_to,omitempty"`
	Seat     int       `json:"seat"` // -1: nobody
	Session  uint64    `json:"session,omitempty"`
	HostPort []string  `json:"host_port,omitempty"`
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is that a member could not work on a shard, as JSON.
type Failure struct {
	Member string    `json:"member"`
	Count  int       `json:"count"`
	Until  time.Time `json:"until"` // it is not tried there again before
	Error  string    `json:"error"`
}

// Of is what an assignment means, which may be nil, with what is known of seats, or nil.
func Of(a *shard.Assignment, seats []shard.Seat, now time.Time) State {
	s := State{Members: []Member{}, Assigned: []Shard{}}
	members := map[shard.SessionID]*Member{}
	drained := map[string]bool{}
	if a != nil {
		s.Version, s.Shards, s.Pins, s.Drained = uint64(a.Version()), a.Len(), a.Pins(), a.Drained()
		for _, id := range s.Drained {
			drained[id] = true
		}
		for _, o := range a.Members() {
			members[o.Session] = &Member{ID: o.Member, Seat: o.Session.Seat, Session: uint64(o.Session.Number), HostPort: o.HostPort}
		}
	}
	unknown := map[int]bool{}
	s.before = slices.ContainsFunc(seats, func(seat shard.Seat) bool { return seat.Session.Number > 0 }) &&
		!slices.ContainsFunc(seats, func(seat shard.Seat) bool { return seat.Member != "" && !seat.Over })
	for _, seat := range seats {
		if seat.Err != nil {
			unknown[seat.Session.Seat] = true
			s.Unreadable = append(s.Unreadable, Unreadable{seat.Session.Seat, seat.Err.Error()})
		}
		if seat.Member == "" {
			continue
		}
		m := members[seat.Session]
		if m == nil {
			m = &Member{}
			members[seat.Session] = m
		}
		m.ID, m.Seat, m.Session, m.HostPort = seat.Member, seat.Session.Seat, uint64(seat.Session.Number), seat.HostPort
		m.Weight, m.Capacity, m.Zone, m.State = seat.Weight, seat.Capacity, seat.Zone, Alive
		if seat.Over {
			m.State = Over
		} else if !seat.Until.IsZero() {
			m.Left = state.Seconds(seat.Until.Sub(now))
		}
	}
	if seats != nil {
		for _, m := range members {
			if m.State == "" && !unknown[m.Seat] {
				m.State = Over // the seat is another session's by now
			}
		}
	}
	s.place(a, members, unknown)
	for _, m := range members {
		m.Drained = drained[m.ID]
		s.Members = append(s.Members, *m)
	}
	slices.SortFunc(s.Members, func(x, y Member) int {
		return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.Seat, y.Seat), cmp.Compare(x.Session, y.Session))
	})
	return s
}

// place says who has which shard.
func (s *State) place(a *shard.Assignment, members map[shard.SessionID]*Member, unknown map[int]bool) {
	for i := range s.Shards {
		name, o := a.Shard(i)
		s.Assigned = append(s.Assigned, one(a, name, o, s.Pins))
		if o.Member == "" {
			s.Unowned++
			continue
		}
		s.Owned++
		m := members[o.Session]
		m.Owned++
		if o.Moving {
			m.Moving++
			s.Moving++
		}
		switch {
		case m.State == Over:
			s.Lost++
		case m.State == "" && unknown[m.Seat]:
			s.Unknown++
		}
	}
}

// OfOne is what an assignment says of one shard.
func OfOne(a *shard.Assignment, name string, o shard.Owner) Shard { return one(a, name, o, a.Pins()) }

func one(a *shard.Assignment, name string, o shard.Owner, pins map[string]string) Shard {
	s := Shard{Name: name, Owner: o.Member, Token: uint64(o.Token), Moving: o.Moving, Pinned: pins[name], Seat: -1}
	if o.Member != "" {
		s.Seat, s.Session, s.HostPort = o.Session.Seat, uint64(o.Session.Number), o.HostPort
	}
	for _, f := range a.Failures(name) {
		s.Failures = append(s.Failures, Failure{f.Member, f.Count, f.Until, f.Err})
	}
	return s
}

// Calm reports whether every shard has an owner that is there, as far as all can be told.
func (s *State) Calm() bool {
	return s.Version > 0 && s.Unowned == 0 && s.Lost == 0 && len(s.Unreadable) == 0
}

// Text is s in words and a table; with each, of all shards.
func (s *State) Text(each bool) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	switch {
	case s.Version == 0 && s.before:
		line("assignment", "there is none, though there were members: it was deleted. Before members start, leaderelect shards reset has tokens go on")
	case s.Version == 0:
		line("assignment", "there is none yet: the group's first member (leaderelect shards run) writes it")
	default:
		line("assignment", "version %d", s.Version)
		line("shards", "%d: %d owned, %d unowned, %d moving%s%s", s.Shards, s.Owned-s.Lost-s.Unknown, s.Unowned, s.Moving,
			some(s.Lost, "members that are gone"), some(s.Unknown, "members whose seat cannot be read"))
	}
	line("coordinator", "%s", cmp.Or(state.Name(s.Coordinator), "nobody"))
	for _, u := range s.Unreadable {
		line(fmt.Sprintf("seat %d", u.Seat), "cannot be read: %s", u.Error)
	}
	if len(s.Members) > 0 {
		b.WriteString("\n" + s.table())
	}
	if list := s.list(each); list != "" {
		b.WriteString("\n" + list)
	}
	return b.String()
}

func some(n int, of string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %s", n, of)
}

// table is the members'.
func (s *State) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tSEAT\tSESSION\tSTATE\tSHARDS\tMOVING\tWEIGHT\tCAPACITY\tZONE\tADDRESSES")
	for _, m := range s.Members {
		is := m.State
		if m.Drained {
			is = strings.TrimPrefix(is+", draining", ", ")
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", state.Name(m.ID), m.Seat, m.Session, orDash(is), m.Owned, m.Moving,
			orDash(number(m.Weight)), orDash(number(m.Capacity)), orDash(state.Name(m.Zone)), orDash(state.Names(m.HostPort)))
	}
	_ = w.Flush()
	return b.String()
}

// list is the shards': all, or those that are not just owned.
func (s *State) list(each bool) string {
	type session struct {
		seat   int
		number uint64
	}
	over := map[session]bool{}
	for _, m := range s.Members {
		over[session{m.Seat, m.Session}] = m.State == Over
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SHARD\tOWNER\tTOKEN\tSTATE")
	n := 0
	for _, one := range s.Assigned {
		is := "owned"
		switch {
		case one.Owner == "":
			is = "unowned"
		case over[session{one.Seat, one.Session}]:
			is = "its member is gone"
		case one.Moving:
			is = "moving"
		}
		if one.Pinned != "" {
			is += ", pinned to " + state.Name(one.Pinned)
		}
		for _, f := range one.Failures {
			is += fmt.Sprintf(", failed at %s (%d times, not again before %s): %s", state.Name(f.Member), f.Count, f.Until.UTC().Format("15:04:05Z"), state.Name(f.Error))
		}
		if each || is != "owned" {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", state.Name(one.Name), orDash(state.Name(one.Owner)), one.Token, is)
			n++
		}
	}
	if _ = w.Flush(); n == 0 {
		return ""
	}
	return b.String()
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func orDash(s string) string { return cmp.Or(s, "-") }

// The values of Event.Event.
const (
	Began   = "state"   // what there was at the start
	Owned   = "owned"   // somebody owns the shard now
	Moving  = "moving"  // its owner is asked to let it go
	Unowned = "unowned" // nobody owns it now
	Removed = "removed" // it is not one of the group's any more
	Joined  = "joined"  // a member has a session
	Left    = "left"    // a session is over
)

// Event is a change of a group, as JSON.
type Event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Version uint64    `json:"version"`
	Shard   string    `json:"shard,omitempty"`
	Member  string    `json:"member,omitempty"` // the owner; of unowned and removed, the one that was
	From    string    `json:"from,omitempty"`   // who owned it before, of owned
	Token   uint64    `json:"token,omitempty"`
	Seat    int       `json:"seat"` // -1: none
	Session uint64    `json:"session,omitempty"`
	// Of what there was at the start:
	Shards  int `json:"shards,omitempty"`
	Missing int `json:"unowned,omitempty"`
	Members int `json:"members,omitempty"`
}

// Text is e as a line.
func (e *Event) Text() string {
	at := e.Time.UTC().Format("2006-01-02T15:04:05.000Z")
	s := fmt.Sprintf("%s version %d: ", at, e.Version)
	name, member := state.Name(e.Shard), state.Name(e.Member)
	switch e.Event {
	case Began:
		return s + fmt.Sprintf("%d shards, %d unowned, %d members", e.Shards, e.Missing, e.Members)
	case Owned:
		s += fmt.Sprintf("shard %s: %s owns it, with token %d", name, member, e.Token)
		if e.From != "" && e.From != e.Member {
			s += ", after " + state.Name(e.From)
		}
	case Moving:
		s += fmt.Sprintf("shard %s: %s is asked to let it go", name, member)
	case Unowned:
		s += fmt.Sprintf("shard %s: nobody owns it", name)
		if e.Member != "" {
			s += ", after " + member
		}
	case Removed:
		s += fmt.Sprintf("shard %s: it is gone", name)
	case Joined:
		s += fmt.Sprintf("%s has joined, at seat %d, session %d", member, e.Seat, e.Session)
	case Left:
		s += fmt.Sprintf("%s has left seat %d, session %d", member, e.Seat, e.Session)
	}
	return strings.TrimSpace(s)
}

// Follower turns assignments into events. It belongs to one goroutine.
type Follower struct{ last *shard.Assignment }

// Changed are the events that a newer assignment brings: the first one is told as a whole.
func (f *Follower) Changed(a *shard.Assignment, now time.Time) []Event {
	old := f.last
	f.last = a
	event := func(kind string) Event { return Event{Time: now, Event: kind, Version: uint64(a.Version()), Seat: -1} }
	if old == nil {
		e := event(Began)
		e.Shards, e.Members = a.Len(), len(a.Members())
		for i := range a.Len() {
			if _, o := a.Shard(i); o.Member == "" {
				e.Missing++
			}
		}
		return []Event{e}
	}
	var all []Event
	member := func(kind string, o shard.Owner) {
		e := event(kind)
		e.Member, e.Seat, e.Session = o.Member, o.Session.Seat, uint64(o.Session.Number)
		all = append(all, e)
	}
	was := sessions(old)
	is := sessions(a)
	for _, o := range a.Members() {
		if _, ok := was[o.Session]; !ok {
			member(Joined, o)
		}
	}
	for i := range a.Len() {
		name, o := a.Shard(i)
		before, _ := old.Owner(name)
		e := event("")
		e.Shard, e.Member, e.Token = name, o.Member, uint64(o.Token)
		switch {
		case o.Member != "":
			e.Seat, e.Session = o.Session.Seat, uint64(o.Session.Number)
			if o.Session != before.Session || o.Token != before.Token {
				owned := e
				owned.Event, owned.From = Owned, before.Member
				all = append(all, owned)
			}
			if o.Moving && (!before.Moving || o.Token != before.Token) {
				e.Event = Moving
				all = append(all, e)
			}
		case before.Member != "":
			e.Event, e.Member = Unowned, before.Member
			all = append(all, e)
		}
	}
	for i := range old.Len() {
		name, o := old.Shard(i)
		if _, ok := a.Owner(name); !ok {
			e := event(Removed)
			e.Shard, e.Member = name, o.Member
			all = append(all, e)
		}
	}
	for _, o := range old.Members() {
		if _, ok := is[o.Session]; !ok {
			member(Left, o)
		}
	}
	return all
}

func sessions(a *shard.Assignment) map[shard.SessionID]struct{} {
	all := map[shard.SessionID]struct{}{}
	for _, o := range a.Members() {
		all[o.Session] = struct{}{}
	}
	return all
}
