package shard

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/c8e606e4/leaderelection"
)

// ErrForeign is wrapped by the error about a record that is not this group's, or is
// damaged, or of a newer version of this package. Nothing overwrites such a record.
var ErrForeign = errors.New("not a record of this group")

// ErrTooLarge is wrapped by the error about an assignment that a record has no room for.
var ErrTooLarge = errors.New("too many shards for one record")

// The bounds of what an assignment holds, checked before anything is written. A
// record has 256 KiB (deciders/record), of which its text form takes a quarter.
const (
	// MaxShards is how many shards a group may have.
	MaxShards = 100_000
	// MaxName is how long a shard's or a member's name may be, in bytes.
	MaxName = 256

	// MaxAssignment is how many bytes an assignment may take in its record's
	// ConnectionParams: less than any store here refuses, as it comes. For one that is
	// set to refuse less there is Config.MaxAssignment.
	MaxAssignment = 180 << 10

	plainUpTo = 4 << 10 // a small assignment can be read by people
	maxText   = 64 << 20
)

const assignmentForm = "shards/1"

// SessionID names a member's session: the seat that it holds, and the number of its
// leadership of that seat. It never comes again.
type SessionID struct {
	Seat   int                           `json:"seat"`
	Number leaderelection.ElectionNumber `json:"number"`
}

// String is the seat and the number, as in "seat 3, session 17".
func (s SessionID) String() string { return fmt.Sprintf("seat %d, session %d", s.Seat, s.Number) }

// session is a session as an assignment names it.
type session struct {
	SessionID
	Member   string   `json:"member"`
	HostPort []string `json:"host_port,omitempty"`
}

// placed is where a shard is: who has it, or had it last, by what token.
type placed struct {
	session   int    // an index into sessions, or none
	token     uint64 // the shard's newest, also where nobody has it
	releasing bool   // its owner is asked to let it go
}

// assignment says which session owns which shard. A value is not changed once it was
// read or written.
type assignment struct {
	version  leaderelection.ElectionNumber
	id       string // random, of this version
	shards   Shards
	sessions []session
	places   []placed          // of each shard, in the order of shards
	retired  uint64            // the greatest token of a shard that is gone
	pins     map[string]string // shard to MemberID
	cordons  []string          // MemberIDs, in order

	token    leaderelection.LeaderToken // the version in the store
	restored bool                       // the store may have lost it: write it again
}

// assignmentJSON is the form in a record's ConnectionParams.
type assignmentJSON struct {
	Form     string            `json:"form"`
	Numbered int               `json:"numbered,omitempty"`
	Named    []string          `json:"named,omitempty"`
	Sessions []session         `json:"sessions,omitempty"`
	Places   []placed          `json:"places"`
	Retired  uint64            `json:"retired,omitempty"`
	Pins     map[string]string `json:"pins,omitempty"`
	Cordons  []string          `json:"cordons,omitempty"`
}

// MarshalJSON writes the session, the token, and 1 if it is to be let go.
func (p placed) MarshalJSON() ([]byte, error) {
	b := strconv.AppendInt([]byte("["), int64(p.session), 10)
	b = strconv.AppendUint(append(b, ','), p.token, 10)
	if p.releasing {
		b = append(b, ",1"...)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads what MarshalJSON writes, and nothing else.
func (p *placed) UnmarshalJSON(text []byte) error {
	var parts []json.Number
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	if len(parts) != 2 && (len(parts) != 3 || parts[2] != "1") {
		return fmt.Errorf("%s is not a place: [session, token] or [session, token, 1]", text)
	}
	index, err := strconv.Atoi(parts[0].String())
	if err != nil {
		return err
	}
	token, err := strconv.ParseUint(parts[1].String(), 10, 63)
	if err != nil {
		return err
	}
	*p = placed{index, token, len(parts) == 3}
	return nil
}

// entry returns the record that a is stored as, if it takes no more than limit bytes.
func (a *assignment) entry(limit int) (*leaderelection.RaceEntry, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(assignmentJSON{assignmentForm, a.shards.numbered, a.shards.names, a.sessions, a.places, a.retired, a.pins, a.cordons})
	if err != nil {
		return nil, err
	}
	if len(text) > plainUpTo {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(text) // a Buffer takes everything
		_ = z.Close()
		text = b.Bytes()
	}
	if len(text) > limit {
		return nil, fmt.Errorf("the assignment of %d shards to %d members takes %d bytes, and a record has room for %d: make fewer shards, or give them shorter names (Numbered ones have none): %w",
			a.shards.Len(), len(a.sessions), len(text), limit, ErrTooLarge)
	}
	return &leaderelection.RaceEntry{ElectionNumber: a.version, Incarnation: a.id, ConnectionParams: text, Token: a.token}, nil
}

// readAssignment is the assignment that e bears: nil, and no error, before there is one.
func readAssignment(e *leaderelection.RaceEntry) (*assignment, error) {
	if e.ElectionNumber == leaderelection.NoElections && len(e.ConnectionParams) == 0 {
		return nil, nil
	}
	a, err := parseAssignment(e)
	if err != nil {
		return nil, fmt.Errorf("the assignment (version %d) cannot be understood: %w: %w", e.ElectionNumber, err, ErrForeign)
	}
	return a, nil
}

func parseAssignment(e *leaderelection.RaceEntry) (*assignment, error) {
	if !e.Vacant() {
		return nil, fmt.Errorf("it is an election's record, which %q leads: Store must give each name a record of its own", e.LeaderID)
	}
	text := e.ConnectionParams
	if len(text) == 0 {
		return nil, errors.New("it is empty: it is an election's record that is vacant, or was reset")
	}
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		if text, err = io.ReadAll(io.LimitReader(z, maxText+1)); err != nil {
			return nil, err
		}
		if len(text) > maxText {
			return nil, errors.New("it is larger than any that this package writes")
		}
	}
	var form struct {
		Form string `json:"form"`
	}
	if err := json.Unmarshal(text, &form); err != nil {
		return nil, fmt.Errorf("its ConnectionParams are not whole, or something else's: %w", err)
	}
	if form.Form != assignmentForm {
		return nil, fmt.Errorf("its form is %q, and this version of the package knows %q alone", form.Form, assignmentForm)
	}
	var j assignmentJSON
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return nil, err
	}
	a := &assignment{
		version: e.ElectionNumber, id: e.Incarnation, sessions: j.Sessions, places: j.Places,
		shards: Shards{numbered: j.Numbered, names: j.Named}, retired: j.Retired, pins: j.Pins, cordons: j.Cordons, token: e.Token,
	}
	return a, a.check()
}

// check returns what is wrong with a, or nil.
func (a *assignment) check() error {
	if a.id == "" {
		return errors.New("its version has no id")
	}
	if err := a.shards.check(); err != nil {
		return err
	}
	if len(a.places) != a.shards.Len() {
		return fmt.Errorf("it places %d shards of %d", len(a.places), a.shards.Len())
	}
	seen := map[SessionID]bool{}
	for _, s := range a.sessions {
		if s.Seat < 0 || s.Number == leaderelection.NoElections || s.Number > leaderelection.MaxElectionNumber || seen[s.SessionID] {
			return fmt.Errorf("its %v (of %q) cannot be, or is there twice", s.SessionID, s.Member)
		}
		seen[s.SessionID] = true
	}
	for i, p := range a.places {
		switch {
		case p.session < none || p.session >= len(a.sessions):
			return fmt.Errorf("shard %q is of session %d of %d", a.shards.Name(i), p.session, len(a.sessions))
		case p.token > uint64(leaderelection.MaxElectionNumber), p.session == none && p.releasing, p.session != none && p.token == 0:
			return fmt.Errorf("shard %q has an impossible place, %+v", a.shards.Name(i), p)
		}
	}
	return nil
}

// clone returns a copy of a that is to become the next version.
func (a *assignment) clone() *assignment {
	b := *a
	b.sessions, b.places, b.cordons, b.pins = slices.Clone(a.sessions), slices.Clone(a.places), slices.Clone(a.cordons), maps.Clone(a.pins)
	return &b
}

// names returns whether a names a session, and its index.
func (a *assignment) names(id SessionID) (int, bool) {
	i := slices.IndexFunc(a.sessions, func(s session) bool { return s.SessionID == id })
	return i, i >= 0
}

// checkName returns what is wrong with a name, or nil.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is empty", what)
	case len(name) > MaxName:
		return fmt.Errorf("%s %.40q… has %d bytes, and may have %d", what, name, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s %q is not UTF-8 text", what, name)
	}
	return nil
}
