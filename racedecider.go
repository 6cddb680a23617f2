package leaderelection

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"maps"
	"net"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/c8e606e4/leaderelection/internal/route/hostports"
)

// ElectionNumber is the fencing token: the number of a leadership, greater than the number of
// every leadership before it. Send it with each act, so that the resource can refuse an
// earlier leader.
//
// A leadership has one number for its whole time: an extension does not change it. Release,
// restart and step-down do not reset it. Numbers may be skipped, and are never repeated. The
// first number of a new record is the seconds since 1970, so that a record that was deleted
// repeats none.
type ElectionNumber uint64

// NoElections is the ElectionNumber of a record by which nobody has led yet.
const NoElections ElectionNumber = 0

// MaxElectionNumber is the greatest ElectionNumber, and the greatest Extension, that a record
// may have. No count gets that far, so a greater number is damage, or somebody's edit. A
// record with one leads to an error that wraps ErrPermanent, and no candidate changes it.
const MaxElectionNumber ElectionNumber = 1<<63 - 1

// AnySuccessor is the Successor that [StepDown] asks for: any other candidate may lead next.
// No candidate may have it as its LeaderID.
const AnySuccessor = "*"

// LeaderToken identifies the version of a record in its store. A conditional write is
// conditional on it. Each decider has its own type, and accepts only that type. A token is
// immutable.
type LeaderToken interface {
	// CommitTS returns the time at which the store wrote this version, by the store's clock,
	// or the zero time if the store does not tell. The library compares a candidate's clock
	// with it. It never decides who leads, but a candidate whose clock it proves wrong
	// compares no clocks (see ErrClockSkew). A timestamp that is coarser than a nanosecond must end in
	// zeros: they show its precision.
	CommitTS() time.Time
}

func commitTS(t LeaderToken) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.CommitTS()
}

// RaceEntry is the one record that an election's candidates compete for.
type RaceEntry struct {
	// LeaderID names the leader. It is empty if the record is vacant.
	LeaderID string
	// HostPort lists the addresses at which clients reach the leader.
	HostPort []string
	// ConnectionParams holds anything else that the leader tells its clients. It is opaque.
	ConnectionParams []byte
	// TermExpiry is when the term runs out, by the clock of the leader that wrote it. In a
	// vacant record it is the end of the reservation for Successor, or the time of the
	// release if there is no Successor.
	TermExpiry time.Time
	// TermLength is the writer's term.
	TermLength time.Duration
	// ElectionNumber is the leadership's number, and its fencing token.
	ElectionNumber ElectionNumber
	// Extension counts the writes within a leadership. The pair
	// (ElectionNumber, Extension) grows with every write, so it orders records.
	Extension uint64
	// Incarnation is a random id that every acquisition makes up. It identifies the leadership,
	// and stays in the record when the leadership is given up. It tells apart two processes
	// that were given the same LeaderID by mistake.
	Incarnation string
	// WriteID is a random id that every acquisition and extension makes up. An operator's
	// request keeps it. It tells apart the writes of two processes that were restored from one
	// snapshot of a machine. It is empty in a vacant record.
	WriteID string
	// Successor names the candidate that is to lead next: a LeaderID, or AnySuccessor. In a
	// held record it asks the leader to hand over. In a vacant record it reserves the
	// record for that candidate until TermExpiry.
	Successor string
	// Unsynchronized says that the writer's wall clock must not be compared with others: its
	// ClockPolicy says so, or one of two clocks is proved wrong and nobody knows which. TermExpiry then says nothing. The term is over when the reader
	// has not seen the record change for a whole TermLength and an allowance for drift, by
	// its own monotonic clock.
	Unsynchronized bool
	// Hold is for how long after TermExpiry nobody may acquire the record, whether it is held
	// or vacant (see OnceOptions.Hold). A job that must run at most once in that time has
	// then had its run. The leader counts the time from its acquisition.
	Hold time.Duration
	// Priority is the leader's Config.Priority. It is zero in a vacant record.
	Priority int

	// Extra holds the fields of the stored record that this version of the library does not
	// know, by name, as JSON. A newer version wrote them. Every write hands them on
	// unchanged, so they survive while a fleet is upgraded or rolled back one process at a
	// time. Nil if there are none.
	Extra map[string]string

	// Token is the version at which this entry was read. It is not stored. The entry of an
	// empty election has a Token too.
	Token LeaderToken `json:"-"`

	// Emptied says of an entry with NoElections that the record is not new. It was emptied,
	// or deleted and created again, and somebody may still lead by what it said before. A
	// candidate then waits for a term and an allowance for drift, from when it first saw
	// this, before it writes. A decider sets Emptied if its store can tell (a generation or
	// sequence above the first, a modification after the creation). It is not stored.
	Emptied bool `json:"-"`
}

// Vacant reports whether nobody holds the record: it was released, or nobody has led yet.
func (e *RaceEntry) Vacant() bool { return e.LeaderID == "" }

// Compare orders two states of one record. It returns -1 if e is older than o, +1 if it is
// newer, and 0 if neither is. Only the pair (ElectionNumber, Extension) counts.
func (e *RaceEntry) Compare(o *RaceEntry) int {
	return cmp.Or(cmp.Compare(e.ElectionNumber, o.ElectionNumber), cmp.Compare(e.Extension, o.Extension))
}

// damaged returns what is wrong with the numbers of e, or nil.
func (e *RaceEntry) damaged() error {
	what, number := "fencing token", uint64(e.ElectionNumber)
	if e.ElectionNumber <= MaxElectionNumber {
		if what, number = "extension", e.Extension; number <= uint64(MaxElectionNumber) {
			return nil
		}
	}
	return fmt.Errorf("leaderelection: %s %d is past the end of all counting (%d), so the record is damaged and is left alone: "+
		"stop all candidates and put a vacant record in its place, with a token that no fence has seen: %w",
		what, number, uint64(MaxElectionNumber), ErrPermanent)
}

// Clone returns a copy of e. The two share only the Token, which is immutable.
func (e *RaceEntry) Clone() *RaceEntry {
	c := *e
	c.HostPort = slices.Clone(e.HostPort)
	c.ConnectionParams = slices.Clone(e.ConnectionParams)
	c.Extra = maps.Clone(e.Extra)
	return &c
}

// public returns a copy of e for users' code, without its Token.
func (e *RaceEntry) public() *RaceEntry {
	c := e.Clone()
	c.Token = nil
	return c
}

// same reports whether e and o are the same state of the record: all their fields are equal, but
// for the Token. Order and Incarnation are not enough. A feed may report a state that is undone,
// and then another state of the same order may be written.
func same(e, o *RaceEntry) bool {
	return o != nil && e.Compare(o) == 0 && e.Incarnation == o.Incarnation && e.WriteID == o.WriteID && e.LeaderID == o.LeaderID &&
		e.Successor == o.Successor && e.TermExpiry.Equal(o.TermExpiry) && e.TermLength == o.TermLength &&
		e.Hold == o.Hold && e.Priority == o.Priority && e.Unsynchronized == o.Unsynchronized && e.Emptied == o.Emptied &&
		slices.Equal(e.HostPort, o.HostPort) && bytes.Equal(e.ConnectionParams, o.ConnectionParams) && maps.Equal(e.Extra, o.Extra)
}

// sameVersion reports whether two tokens are of the same version of the record: they are equal, or
// have equal contents if they cannot be compared. To ask reflect whether they can costs two dozen allocations.
func sameVersion(a, b LeaderToken) (same bool) {
	defer func() {
		if recover() != nil {
			same = reflect.DeepEqual(a, b)
		}
	}()
	return a == b
}

// RaceDecider is a store's contract: one record, and a conditional write that decides which
// candidate gets it. Implement it to elect by a store that has no decider yet. decidertest.Run
// has a subtest for every sentence here. A store that breaks one of them cannot decide an
// election.
//
// All methods may be called by several goroutines at once, even on several deciders of the
// same record. Both methods return soon after ctx has ended, whatever the store is doing. So
// neither retries for longer than its ctx lasts. The campaign retries, and knows how.
//
// Errors name the place (bucket and object, table and key) and wrap the error of the store's
// client. If no retry can help (no such bucket, no permission, a record that is not ours or
// cannot be read), the error wraps [ErrPermanent].
//
// If the store has asked for a pause, the error is or wraps a [RetryAfterError].
//
// A RaceDecider may be a fmt.Stringer. String then names the place, for the error of a call
// that the campaign has given up.
type RaceDecider interface {
	// ReadCurrent returns the current record, with the Token of that version.
	//
	// If nothing has been written yet, it returns a vacant entry with ElectionNumber
	// NoElections, and with a Token by which WriteEntry creates the record. It never returns
	// nil without an error. Every field that was written is read back, times to the
	// nanosecond. The entry belongs to the caller. If the store has something that is not a
	// record, ReadCurrent returns an error, best a [DamagedRecordError], which has the
	// version by which Reset may replace it.
	//
	// A read may be stale if the store's reads are: a decision rests on the write alone.
	ReadCurrent(ctx context.Context) (*RaceEntry, error)

	// WriteEntry replaces the record by entry if, and only if, the stored version is still
	// that of entry.Token. It does so in one atomic step. A nil Token means that there must
	// be no record yet.
	//
	// On success it returns the token of the new version, which the next write can use. A
	// success must be proved: the store's response has what its response to a write always
	// has, such as a version. A response without it, such as a proxy's error page turned
	// into 200, is an error other than ErrLostRace. The campaign takes a nil token, or the
	// token that was written over, for such an error.
	//
	// If the stored version is another, WriteEntry changes nothing and returns an error that
	// wraps [ErrLostRace]. The error may have the current record, see [LostRaceError].
	// After any other error the write may have happened, or may still happen: ReadCurrent
	// tells. WriteEntry neither changes nor keeps entry.
	WriteEntry(ctx context.Context, entry *RaceEntry) (LeaderToken, error)
}

// ChangeFeed is implemented by a RaceDecider whose store can report changes. A feed carries
// news and never decides: all safety rests on WriteEntry. A feed that falls silent, repeats
// itself, comes late or reports what never was costs time, not safety, since WriteEntry refuses
// the Token of what is not the record.
//
// So a feed may report a state before the store has committed it, even one that the store
// then undoes: a leadership, an extension or a vacancy that nobody will ever read. Some
// stores' feeds do so when a server is cut off or crashes. Only the answer to a write, or a
// read, shows that the write happened. A decider's package says whether its feed can report
// what is undone.
type ChangeFeed interface {
	// Changes follows the record. The sequence yields first the current record, as
	// ReadCurrent returns it, even if nobody has led yet. Then it yields each later state, in
	// order. Some states may be merged into later ones. Nothing is missed between the first
	// entry and the later ones. Each entry has a Token that WriteEntry accepts, and belongs
	// to the caller. If a reported state is undone, the current record follows, which is
	// older. WriteEntry refuses the Token of the undone state with [ErrLostRace].
	//
	// If the feed fails, the sequence ends with one error and a nil entry. It ends without
	// one soon after ctx has ended, or when the loop over it is left. After that it holds
	// no goroutine and no connection. One goroutine consumes it; each call of Changes makes
	// a new feed.
	Changes(ctx context.Context) iter.Seq2[*RaceEntry, error]
}

// maxLeaderID is how many bytes a LeaderID may have.
const maxLeaderID = 1 << 10

// checkID returns why no candidate can be called id, which the caller has by that name.
func checkID(name, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%s is empty: each candidate has a name of its own", name)
	case id == AnySuccessor:
		return fmt.Errorf("%s %q is reserved for AnySuccessor, which StepDown asks for", name, id)
	case len(id) > maxLeaderID:
		return fmt.Errorf("%s %.40q... has %d bytes, and %d are allowed", name, id, len(id), maxLeaderID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%s %q is not UTF-8 text, which is all that a record can keep", name, id)
	}
	return nil
}

// maxAnnouncement is how many bytes of a record HostPort and ConnectionParams may take, in the
// worst case. Stores keep a quarter of a MiB.
const maxAnnouncement = 192 << 10

// checkAnnouncement returns why a record cannot keep this HostPort and these ConnectionParams.
func checkAnnouncement(hostPort []string, params []byte) (faults []error) {
	size := base64.StdEncoding.EncodedLen(len(params))
	for i, s := range hostPort {
		if !utf8.ValidString(s) {
			faults = append(faults, fmt.Errorf("HostPort %d, %q, is not UTF-8 text, which is all that a record can keep", i, s))
		} else if host, _, err := net.SplitHostPort(s); err != nil {
			faults = append(faults, fmt.Errorf("HostPort %d, %q, is not host:port: %w", i, s, err))
		} else if host == "" || net.ParseIP(host).IsUnspecified() {
			faults = append(faults, fmt.Errorf("HostPort %d, %q, leads no client here: name this machine, as SelfHostPorts does", i, s))
		}
		size += 6 * len(s) // if each is a control character
	}
	if size > maxAnnouncement {
		faults = append(faults, fmt.Errorf("HostPort and ConnectionParams may take %d bytes of the record, and %d are allowed: keep them short", size, maxAnnouncement))
	}
	return faults
}

// SelfHostPorts returns this machine's global unicast addresses, each joined with port. Use it
// for Config.HostPort. IPv4 addresses come first, in the order of the interfaces that are up.
// Bridges that Docker, Podman, CNI, libvirt or LXD make within a machine count only if it has no other address.
// It fails if port is empty, or if there is no such address.
func SelfHostPorts(port string) ([]string, error) { return hostports.Own(port) }
