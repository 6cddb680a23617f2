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
