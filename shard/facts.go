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
	entry   *leaderelection.RaceEntry     // the newest; nil: not read yet
	over    leaderelection.ElectionNumber // the greatest session that has ended for sure
	info    *seatInfo                     // of its holder, or nil
	broken  error                         // why it has none
	lapsed  bool                          // its term has run out
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

// learn takes a record, and reports whether it changes a fact.
func (s *seat) learn(e *leaderelection.RaceEntry, lapsed bool) (matters bool) {
	old := s.entry
	if old != nil {
		switch order := e.Compare(old); {
		case order < 0:
			return false // old news
		case order == 0 && e.LeaderID == old.LeaderID: // else what was known was undone
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
	if s.sealing != nil && (e.Vacant() || len(e.ConnectionParams) > 0) {
		s.sealing() // it is sealed, or a member has taken it
	}
	if old != nil && old.ElectionNumber == e.ElectionNumber && old.LeaderID == e.LeaderID && bytes.Equal(old.ConnectionParams, e.ConnectionParams) {
		return matters
	}
	s.info, s.broken = nil, nil
	if !e.Vacant() && len(e.ConnectionParams) > 0 { // one that is being sealed has none
		s.info, s.broken = readSeat(e)
	}
	return true
}

// alive returns who has the session now, or nil: it has ended, or seems to.
func (f *facts) alive(id SessionID) *seatInfo {
	if s := f.seats[id.Seat]; s != nil && s.entry != nil && !s.entry.Vacant() && s.entry.ElectionNumber == id.Number && !s.lapsed {
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
