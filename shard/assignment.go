package shard

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/c8e606e4/leaderelection"
)

// ErrForeign means that a record is not this group's, is damaged, or was written by a newer version
// of this package. Only a forced [Operator.Reset] overwrites such a record.
var ErrForeign = errors.New("shard: not a record of this group")

// ErrTooLarge means that an assignment is larger than a record may be.
var ErrTooLarge = errors.New("shard: too many shards for one record")

// Bounds of an assignment, checked before anything is written. A record has 256 KiB
// (deciders/record), of which its text form takes a quarter.
const (
	// MaxShards is the greatest number of shards in a group.
	MaxShards = 100_000

	// MaxAssignment is how many bytes an assignment may take in its record's
	// ConnectionParams. Every store here takes that much by default. If yours is set to take
	// less, see Config.MaxAssignment.
	MaxAssignment = 180 << 10

	maxName   = 256     // the greatest length of a shard's or a member's name, in bytes
	plainUpTo = 4 << 10 // a smaller assignment is not compressed, so that people can read it
	maxText   = 64 << 20
)

const assignmentForm = "shards/1"

// SessionID identifies a member's session: the seat that it holds, and the ElectionNumber of its
// leadership of that seat. No two sessions have the same.
type SessionID struct {
	Seat   int                           `json:"seat"`
	Number leaderelection.ElectionNumber `json:"number"`
}

// String returns the seat and the number, as in "seat 3, session 17".
func (s SessionID) String() string { return fmt.Sprintf("seat %d, session %d", s.Seat, s.Number) }

// session describes a session in an assignment.
type session struct {
	SessionID
	Member   string   `json:"member"`
	HostPort []string `json:"host_port,omitempty"`
}

// placed is the place of a shard: the session that has it or had it last, and its token.
type placed struct {
	session   int    // an index into sessions, or none
	token     uint64 // the shard's newest, even if nobody has the shard
	releasing bool   // its owner has been asked to let it go
}

// assignment says which session owns which shard. A value does not change after it was read or
// written.
type assignment struct {
	version  leaderelection.ElectionNumber
	id       string // random, of this version
	shards   Shards
	sessions []session
	places   []placed          // of each shard, in the order of shards
	retired  uint64            // the greatest token of the shards that are gone, and of earlier records
	pins     map[string]string // shard to MemberID
	drained  []string          // MemberIDs, in order
	failures map[string][]failure

	token    leaderelection.LeaderToken // the version in the store
	restored bool                       // the store may have lost it: write it again
}

// failure says that a member could not work on a shard.
type failure struct {
	Member string    `json:"member"`
	Count  int       `json:"count"`
	Until  time.Time `json:"until"` // the shard is not tried there before, by the coordinator's clock
	Err    string    `json:"error"`
}

// maxFailures is for how many shards failures are remembered.
const maxFailures = 100

// assignmentJSON is the form in a record's ConnectionParams.
type assignmentJSON struct {
	Form     string            `json:"form"`
	Numbered int               `json:"numbered,omitempty"`
	Named    []string          `json:"named,omitempty"`
	Sessions []session         `json:"sessions,omitempty"`
	Base     uint64            `json:"base,omitempty"` // to be added to the tokens of places
	Places   []placed          `json:"places"`
	Retired  uint64            `json:"retired,omitempty"`
	Pins     map[string]string `json:"pins,omitempty"`
	Drained  []string          `json:"drained,omitempty"`

	Failures map[string][]failure `json:"failures,omitempty"`
}

// MarshalJSON writes the session, the token, and 1 if the shard must be let go.
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

// entry returns the record that stores a. It fails if that takes more than limit bytes.
func (a *assignment) entry(limit int) (*leaderelection.RaceEntry, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	j := assignmentJSON{
		Form: assignmentForm, Numbered: a.shards.numbered, Named: a.shards.names, Sessions: a.sessions,
		Places: slices.Clone(a.places), Retired: a.retired, Pins: a.pins, Drained: a.drained, Failures: a.failures,
	}
	// Tokens begin with the time, so only their ends differ.
	if len(j.Places) > 0 {
		j.Base = slices.MinFunc(j.Places, func(p, q placed) int { return cmp.Compare(p.token, q.token) }).token
	}
	for i := range j.Places {
		j.Places[i].token -= j.Base
	}
	text, err := json.Marshal(j)
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

// readAssignment returns the assignment in e. It returns nil without an error if there is none yet.
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
		shards: Shards{numbered: j.Numbered, names: j.Named}, retired: j.Retired, pins: j.Pins, drained: j.Drained, token: e.Token,
		failures: j.Failures,
	}
	for i := range a.places {
		a.places[i].token += min(j.Base, uint64(leaderelection.MaxElectionNumber)) // check finds what is too great
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

// number returns the version of a, or 0 if a is nil.
func (a *assignment) number() leaderelection.ElectionNumber {
	if a == nil {
		return leaderelection.NoElections
	}
	return a.version
}

// moves reports whether a shard is about to move.
func (a *assignment) moves() bool {
	return a != nil && slices.ContainsFunc(a.places, func(p placed) bool { return p.releasing })
}

// clone returns a copy of a, from which to make the next version.
func (a *assignment) clone() *assignment {
	b := *a
	b.sessions, b.places, b.drained, b.pins = slices.Clone(a.sessions), slices.Clone(a.places), slices.Clone(a.drained), maps.Clone(a.pins)
	b.failures = maps.Clone(a.failures) // nobody changes its lists
	return &b
}

// names returns the index of a session in a, and whether a has it.
func (a *assignment) names(id SessionID) (int, bool) {
	i := slices.IndexFunc(a.sessions, func(s session) bool { return s.SessionID == id })
	return i, i >= 0
}

// seats returns how many seats there must be: those up to the last one that a names.
func (a *assignment) seats() (n int) {
	for _, s := range a.sessions {
		n = max(n, s.Seat+1)
	}
	return n
}

// checkName returns what is wrong with a name, or nil.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s is empty", what)
	case len(name) > maxName:
		return fmt.Errorf("%s %.40q… has %d bytes, and may have %d", what, name, len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s %q is not UTF-8 text", what, name)
	}
	return nil
}

// Assignment says which member owns which shard, in one version. Use it to route requests, and to
// show the group. It does not change, so it is a statement about the past. Whether a member may
// act on a shard, only [Owned.ValueInFuture] can say, and at the resource the token. A nil or zero
// Assignment has no shards.
type Assignment struct{ a assignment }

// Owner describes the owner of a shard.
type Owner struct {
	Member   string    // its MemberID; empty if nobody owns the shard
	HostPort []string  // the addresses at which clients reach it
	Session  SessionID // zero if nobody owns the shard
	// Token is the shard's newest token, even if nobody owns the shard.
	Token leaderelection.ElectionNumber
	// Moving says that the member has been asked to let the shard go.
	Moving bool
}

func (a *assignment) public() *Assignment {
	if a == nil {
		return nil
	}
	return &Assignment{*a}
}

// in returns what is in a, which may be nil.
func (a *Assignment) in() *assignment {
	if a == nil {
		return &assignment{}
	}
	return &a.a
}

// Version returns the number of this assignment. It grows with each new assignment of the group.
func (a *Assignment) Version() leaderelection.ElectionNumber { return a.in().version }

// Len returns the number of shards, including those that are about to go.
func (a *Assignment) Len() int { return a.in().shards.Len() }

// Of returns the number of numbered shards in the group, or 0 if the shards have names. A router
// passes it to [KeyName]: with another number, a key leads to the wrong shard.
func (a *Assignment) Of() int { return a.in().shards.numbered }

// Shard returns the name and the owner of shard i, from 0 to Len()-1. The shards are in the order
// of their names, or of their numbers if they are Numbered.
func (a *Assignment) Shard(i int) (name string, owner Owner) {
	p := a.a.places[i]
	owner = Owner{Token: leaderelection.ElectionNumber(p.token), Moving: p.releasing}
	if p.session != none {
		s := a.a.sessions[p.session]
		owner.Member, owner.HostPort, owner.Session = s.Member, s.HostPort, s.SessionID
	}
	return a.a.shards.Name(i), owner
}

// Owner returns the owner of the shard with the given name, and false if there is no such shard.
func (a *Assignment) Owner(shard string) (Owner, bool) {
	i := a.in().shards.index(shard)
	if i == none {
		return Owner{}, false
	}
	_, owner := a.Shard(i)
	return owner, true
}

// Failure says that a member could not work on a shard: its OnOwned returned an error.
type Failure struct {
	Member string    // its MemberID
	Count  int       // the number of failures without an hour in between
	Until  time.Time // the shard is not tried there again before
	Err    string    // the last error
}

// Failures returns the members that have failed with a shard within the last hour.
func (a *Assignment) Failures(shard string) []Failure {
	var all []Failure
	for _, f := range a.in().failures[a.in().shards.canonical(shard)] {
		all = append(all, Failure(f))
	}
	return all
}

// Totals returns the number of shards that nobody owns, the number of those whose owner has been
// asked to let them go, and the number of those with which a member has failed within the last
// hour.
func (a *Assignment) Totals() (unowned, moving, failing int) {
	all := a.in()
	for i, p := range all.places {
		switch {
		case p.session == none:
			unowned++
		case p.releasing:
			moving++
		}
		if len(all.failures[all.shards.Name(i)]) > 0 {
			failing++
		}
	}
	return unowned, moving, failing
}

// Members returns the sessions that have a seat, or had one and still own a shard, in the order
// of their seats.
func (a *Assignment) Members() []Owner {
	var members []Owner
	for _, s := range a.in().sessions {
		members = append(members, Owner{Member: s.Member, HostPort: s.HostPort, Session: s.SessionID})
	}
	return members
}

// Pins returns the MemberID of the member to which each pinned shard is pinned: see
// [Operator.Pin].
func (a *Assignment) Pins() map[string]string { return maps.Clone(a.in().pins) }

// Drained returns the MemberIDs of the drained members, in order: see [Operator.Drain].
func (a *Assignment) Drained() []string { return slices.Clone(a.in().drained) }
