package shard

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// facts are what is on record about the seats. If they say that a session has ended, or has let go
// of a shard, that is true for ever, however old they are (rule 3).
type facts struct{ seats map[int]*seat }

func newFacts() *facts { return &facts{seats: map[int]*seat{}} }

// seat is what is known of a seat's record.
type seat struct {
	entry   *leaderelection.RaceEntry     // the newest read; nil: none yet
	told    *leaderelection.RaceEntry     // a newer one of the same session that was only pushed, or nil
	over    leaderelection.ElectionNumber // the greatest session that has ended for sure
	info    *seatInfo                     // of its holder, or nil
	broken  error                         // why there is no info
	lapsed  bool                          // its term seems to have run out
	since   time.Time                     // when its session was first known
	renewed time.Time                     // when it was last seen to be extended
	sealing context.CancelFunc            // not nil: it is being sealed
	moving  *moving                       // of its watcher
}

// complete reports whether every seat that is watched has been read.
func (f *facts) complete() bool {
	for _, s := range f.seats {
		if s.entry == nil {
			return false
		}
	}
	return true
}

// learn takes in a record that was read, and reports whether it changes a fact. A newer record that
// was pushed may have been undone.
func (s *seat) learn(e *leaderelection.RaceEntry, lapsed bool) (matters bool) {
	old := s.entry
	if old != nil {
		switch order := e.Compare(old); {
		case order < 0:
			return false // a stale read
		case order == 0:
			matters = lapsed && !s.lapsed
			s.lapsed = s.lapsed || lapsed
			return matters
		}
	}
	over := e.ElectionNumber
	if !e.Vacant() {
		over = max(over, 1) - 1
	}
	s.over = max(s.over, over)
	matters = lapsed != s.lapsed
	s.entry, s.lapsed = e, lapsed
	if s.told != nil && !sameSession(s.told, e) {
		s.told = nil
	}
	return s.holder(old, e) || matters
}

// hear takes in a pushed record of the session that was read, and reports whether it changes a
// fact. Even if the record is undone, it is true that the session has released its seat, or has let
// go of a shard. That the session's term goes on is not a fact.
func (s *seat) hear(e *leaderelection.RaceEntry) (matters bool) {
	known := s.entry
	if s.told != nil && s.told.Compare(known) > 0 {
		known = s.told
	}
	if e.Compare(known) <= 0 {
		return false
	}
	s.told = e
	if e.Vacant() {
		matters = s.over < e.ElectionNumber
		s.over = max(s.over, e.ElectionNumber)
		s.info, s.broken = nil, nil
		return matters
	}
	matters, s.lapsed = s.lapsed, false
	return s.holder(known, e) || matters
}

// holder takes the seat's holder from e, which is newer than old. It reports whether that is news.
func (s *seat) holder(old, e *leaderelection.RaceEntry) (matters bool) {
	if s.sealing != nil && (e.Vacant() || len(e.ConnectionParams) > 0) {
		s.sealing() // it is sealed, or a member has taken it
	}
	if old != nil && sameSession(old, e) && old.LeaderID == e.LeaderID && bytes.Equal(old.ConnectionParams, e.ConnectionParams) {
		return false
	}
	s.info, s.broken = nil, nil
	if !e.Vacant() && len(e.ConnectionParams) > 0 { // a seat that is being sealed has none
		s.info, s.broken = readSeat(e)
	}
	return true
}

// sameSession reports whether two records belong to one leadership.
func sameSession(a, b *leaderelection.RaceEntry) bool {
	return a.ElectionNumber == b.ElectionNumber && a.Incarnation == b.Incarnation
}

// alive returns the holder of the session, or nil if the session has ended, or seems to have.
func (f *facts) alive(id SessionID) *seatInfo {
	if s := f.seats[id.Seat]; s != nil && s.entry != nil && s.entry.ElectionNumber == id.Number && s.over < id.Number && !s.lapsed {
		return s.info
	}
	return nil
}

// succeeds reports whether a member seems to have begun the session after a restart, while the term
// of its last session still runs: another session of the MemberID was known before, and has not
// been extended since. (If it is extended, two processes have one MemberID.)
func (f *facts) succeeds(id SessionID) bool {
	s := f.seats[id.Seat]
	for k, other := range f.seats {
		if k == id.Seat || other.entry == nil || other.info == nil || other.info.Member != s.info.Member || other.info.Leaving ||
			f.alive(SessionID{k, other.entry.ElectionNumber}) == nil {
			continue
		}
		if other.since.Before(s.since) && !other.renewed.After(s.since) {
			return true
		}
	}
	return false
}

// twins returns the MemberIDs that several processes have.
func (f *facts) twins() []string {
	seen := map[string]int{}
	var twins []string
	for k, s := range f.seats {
		if s.entry == nil || s.info == nil || s.info.Leaving || f.alive(SessionID{k, s.entry.ElectionNumber}) == nil || f.succeeds(SessionID{k, s.entry.ElectionNumber}) {
			continue
		}
		if seen[s.info.Member]++; seen[s.info.Member] == 2 {
			twins = append(twins, s.info.Member)
		}
	}
	slices.Sort(twins)
	return twins
}

// saw notes when a seat's newest record was known, if it is newer than old.
func (s *seat) saw(old *leaderelection.RaceEntry, now time.Time) {
	e := s.newest()
	switch {
	case e == nil || old != nil && e.Compare(old) <= 0:
	case old == nil || !sameSession(e, old):
		s.since, s.renewed = now, time.Time{}
	default:
		s.renewed = now
	}
}

// newest returns the newest record that was read or pushed.
func (s *seat) newest() *leaderelection.RaceEntry {
	if s.told != nil && (s.entry == nil || s.told.Compare(s.entry) > 0) {
		return s.told
	}
	return s.entry
}

// ended reports whether it is on record that the session has ended. It never becomes
// untrue.
func (f *facts) ended(id SessionID) bool {
	s := f.seats[id.Seat]
	return s != nil && s.over >= id.Number
}

// letGo reports whether it is on record that the session has let go of the shard's token.
func (f *facts) letGo(id SessionID, shard string, token uint64) bool {
	s := f.seats[id.Seat]
	return s != nil && s.info != nil && s.entry.ElectionNumber == id.Number && s.info.LetGo[shard] >= token && token > 0
}
