package shard

import (
	"bytes"
	"context"

	"github.com/c8e606e4/leaderelection"
)

// facts are what is on record of the seats. What they say has ended has ended, and what
// they say was let go was let go, for good, however old they are (rule 3).
type facts struct{ seats map[int]*seat }

func newFacts() *facts { return &facts{seats: map[int]*seat{}} }

// seat is what is known of a seat's record.
type seat struct {
	entry   *leaderelection.RaceEntry     // the newest read; nil: none yet
	told    *leaderelection.RaceEntry     // a newer one of the same session that was only told of, or nil
	over    leaderelection.ElectionNumber // the greatest session that has ended for sure
	info    *seatInfo                     // of its holder, or nil
	broken  error                         // why it has none
	lapsed  bool                          // its term has run out, it seems
	sealing context.CancelFunc            // not nil: it is being sealed
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

// learn takes a record that was read, and reports whether it changes a fact. What was
// told, and is newer, may have been undone.
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

// hear takes a record that was told of, of the session that was read, and reports whether
// it changes a fact. If it is undone, it is true nevertheless that the session has
// released, or let go of something; that its term goes on is not a fact.
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
		return matters
	}
	matters, s.lapsed = s.lapsed, false
	return s.holder(known, e) || matters
}

// holder takes from e, newer than old, who holds the seat, and reports whether that is
// something new.
func (s *seat) holder(old, e *leaderelection.RaceEntry) (matters bool) {
	if s.sealing != nil && (e.Vacant() || len(e.ConnectionParams) > 0) {
		s.sealing() // it is sealed, or a member has taken it
	}
	if old != nil && sameSession(old, e) && old.LeaderID == e.LeaderID && bytes.Equal(old.ConnectionParams, e.ConnectionParams) {
		return false
	}
	s.info, s.broken = nil, nil
	if !e.Vacant() && len(e.ConnectionParams) > 0 { // one that is being sealed has none
		s.info, s.broken = readSeat(e)
	}
	return true
}

// sameSession reports whether two records are of one leadership.
func sameSession(a, b *leaderelection.RaceEntry) bool {
	return a.ElectionNumber == b.ElectionNumber && a.Incarnation == b.Incarnation
}

// alive returns who has the session now, or nil: it has ended, or seems to.
func (f *facts) alive(id SessionID) *seatInfo {
	if s := f.seats[id.Seat]; s != nil && s.entry != nil && s.entry.ElectionNumber == id.Number && s.over < id.Number && !s.lapsed {
		return s.info
	}
	return nil
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
