package leaderelection

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// ElectionNumber counts the leaderships of an election. It is the fencing token: one
// number for a whole leadership, greater than that of every leadership before it. It
// grows only with a new leadership, never with an extension, and outlives release,
// restart and step-down. It may skip numbers; it never repeats one.
type ElectionNumber uint64

// NoElections is the ElectionNumber of a record in which nobody has ever led.
const NoElections ElectionNumber = 0

// MaxElectionNumber is the greatest ElectionNumber, and Extension, that a record may
// have. What is greater was never counted to: it is damage, or somebody's edit. Such a
// record is an error that wraps ErrPermanent, and is left alone.
const MaxElectionNumber ElectionNumber = 1<<63 - 1

// AnySuccessor is the Successor that [StepDown] asks for: the leader is to go,
// and whoever comes next is welcome. No candidate may have it as its LeaderID.
const AnySuccessor = "*"

// LeaderToken names the version of a record in its store: what a conditional
// write is conditional on. Each decider has a type of its own, and accepts only
// its own. A token is immutable.
type LeaderToken interface {
	// CommitTS is when the store says that it wrote this version, by the
	// store's clock, or the zero time where the store does not say. It never
	// decides who leads; a candidate's clock is compared with it, and where it
	// proves that one wrong, the candidate does not lead (see ErrClockSkew). A
	// stamp that is coarser than a nanosecond ends in zeros, by which its
	// precision is known.
	CommitTS() time.Time
}

// RaceEntry is the one record that an election's candidates compete for.
type RaceEntry struct {
	// LeaderID is who leads; empty where the record is vacant.
	LeaderID string
	// HostPort is where clients reach the leader.
	HostPort []string
	// ConnectionParams is whatever else the leader tells its clients; opaque.
	ConnectionParams []byte
	// TermExpiry is when the term runs out, by the clock of the leader that
	// wrote it. In a vacant record it is the end of the reservation for
	// Successor, or where there is none the time of the release.
	TermExpiry time.Time
	// TermLength is the writer's term.
	TermLength time.Duration
	// ElectionNumber is the leadership's number, and its fencing token.
	ElectionNumber ElectionNumber
	// Extension counts the writes within a leadership, whoever made them. The pair
	// (ElectionNumber, Extension) grows with every write: it orders records.
	Extension uint64
	// Incarnation is a random id of the candidate process that claimed the
	// leadership (in a vacant record: that gave it up), made afresh by every Start.
	Incarnation string
	// Successor is who is to lead next: a LeaderID, or AnySuccessor. In a held
	// record it asks the leader to hand over; in a vacant one it reserves the
	// record for that candidate until TermExpiry.
	Successor string
	// Unsynchronized says that the writer's wall clock must not be compared with
	// others (Config.Unsynchronized): TermExpiry then tells nothing, and the term
	// is over when the record has not been seen to change for a whole TermLength
	// and some more, by one's own monotonic clock.
	Unsynchronized bool
	// Hold is how much longer than TermExpiry the record is nobody's to acquire, be it
	// held or vacant (Config.Hold): whoever leads then has run what was to run at most
	// once until then. The candidate that leads counts it from its acquisition.
	Hold time.Duration
	// Priority is the leader's (Config.Priority); zero in a vacant record.
	Priority int

	// Extra is what else the stored record has: fields that this version of the
	// library does not know, by name, as JSON. A newer version wrote them; every
	// write hands them on as they are, so that they survive a fleet that is upgraded
	// or rolled back one process at a time. Nil if there are none.
	Extra map[string]string

	// Token is the version that this entry was read at, and is not part of
	// what is stored. A store's entry for an empty election carries one too.
	Token LeaderToken `json:"-"`
}

// Vacant reports whether nobody holds the record: it was released, or the election
// is still empty.
func (e *RaceEntry) Vacant() bool { return e.LeaderID == "" }

// Compare orders two states of one record: -1 where e is older than o, +1 where
// it is newer, 0 where they are the same state. Only the pair (ElectionNumber,
// Extension) counts.
func (e *RaceEntry) Compare(o *RaceEntry) int {
	switch {
	case e.ElectionNumber < o.ElectionNumber:
		return -1
	case e.ElectionNumber > o.ElectionNumber:
		return +1
	case e.Extension < o.Extension:
		return -1
	case e.Extension > o.Extension:
		return +1
	}
	return 0
}

// damaged returns what is wrong with the numbers of e, or nil.
func (e *RaceEntry) damaged() error {
	what, number := "ElectionNumber", uint64(e.ElectionNumber)
	if e.ElectionNumber <= MaxElectionNumber {
		if what, number = "Extension", e.Extension; number <= uint64(MaxElectionNumber) {
			return nil
		}
	}
	return fmt.Errorf("leaderelection: %s %d is past the end of all counting (%d), so the record is damaged and is left alone: "+
		"stop all candidates and put a vacant record in its place, with an ElectionNumber that no fence has seen: %w",
		what, number, uint64(MaxElectionNumber), ErrPermanent)
}

// Clone returns a copy of e that shares nothing with it but the immutable
// Token.
func (e *RaceEntry) Clone() *RaceEntry {
	c := *e
	c.HostPort = slices.Clone(e.HostPort)
	c.ConnectionParams = slices.Clone(e.ConnectionParams)
	c.Extra = maps.Clone(e.Extra)
	return &c
}

// RaceDecider is a store's contract: one record, and a conditional write that
// decides who won the race for it. Every sentence here is held to by a subtest
// of decidertest.Run; a store that cannot keep all of them cannot decide an
// election.
//
// All methods may be called by several goroutines at once, also on several
// deciders of the same record. Neither method retries on its own behalf for
// longer than its ctx lasts: both return soon after ctx has ended, whatever the
// store is doing. The campaign retries, and knows how.
//
// Errors name the place (bucket and object, table and key) and wrap what the
// store's client returned. One that no retry can cure (no such bucket, no
// permission, a record that is not ours or cannot be read) wraps [ErrPermanent].
//
// A RaceDecider that is a fmt.Stringer tells the place by String, for the error of a
// call that was given up.
type RaceDecider interface {
	// ReadCurrent returns the record as it is, with the Token of that version.
	//
	// Where nothing has been written yet it returns a vacant entry with
	// ElectionNumber NoElections, and a Token with which WriteEntry creates
	// the record; it never returns nil without an error. Every field that was
	// written is read back, times to the nanosecond. The entry belongs to the
	// caller. What is there but is no record is an error, best a [DamagedRecordError], which
	// has the version by which Reset may replace it.
	//
	// A read may be stale where the store's reads are: a decision rests on the
	// write alone.
	ReadCurrent(ctx context.Context) (*RaceEntry, error)

	// WriteEntry replaces the record by entry if, and only if, the stored
	// version is still entry.Token's, in one atomic step. A nil Token means
	// that there must be no record yet.
	//
	// On success it returns the new version's token, usable for the next
	// write. Where the stored version is another it changes nothing, and
	// returns an error that wraps [ErrLostRace]; the error may carry the
	// current record, see [LostRaceError]. Any other error leaves open whether
	// the write happened, or will still happen: that must be asked with
	// ReadCurrent. Entry is not changed nor kept.
	WriteEntry(ctx context.Context, entry *RaceEntry) (LeaderToken, error)
}

// ChangeFeed is what a RaceDecider implements as well where its store can tell
// of changes. A feed only carries news, it never decides: all safety rests on
// WriteEntry, and a feed that falls silent, repeats itself, comes late or tells
// of what never was costs time, not safety.
//
// So a feed may tell of a state before the store has committed it, also of one
// that the store then undoes: a leadership, an extension or a vacancy that nobody
// will ever read. Some stores' feeds do when a server is cut off or crashes. Only
// the answer to a write, or a read, shows that the write happened. A decider's
// package says whether its feed can tell of what is undone.
type ChangeFeed interface {
	// Changes follows the record. The sequence yields first the record as it
	// is (as ReadCurrent returns it, also where the election is empty), then
	// each later state, in order; some may be merged into their successors.
	// Each entry has a Token that WriteEntry accepts, and belongs to the
	// caller. Nothing is missed between the first entry and the later ones. When
	// a state that was told of is undone, the record as it is follows, which is
	// older; the Token of what was undone is one that WriteEntry refuses with
	// [ErrLostRace].
	//
	// The sequence ends with one error (and a nil entry) where the feed has
	// failed, or without one soon after ctx has ended, or when the loop over
	// it is left. It holds no goroutine or connection after that. It is
	// consumed by one goroutine; each call of Changes makes a feed of its own.
	Changes(ctx context.Context) iter.Seq2[*RaceEntry, error]
}
