package sim

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// Memory is a Store in memory: a conditional write that is atomic, and nothing that
// goes wrong. What goes wrong is put on top, by Link; but for what no link can do, see
// Foretell and SetBack.
type Memory struct {
	unit time.Duration // of the time that it stamps records with; 0: it does not say

	mu      sync.Mutex
	current *le.RaceEntry
	version version
	issued  uint64        // versions
	rumour  *le.RaceEntry // what feeds tell of in place of current; nil: nothing
	changed chan struct{} // closed by the next write, or rumour
}

// version is the Memory's token.
type version struct {
	n      uint64
	stamp  time.Time
	rumour bool // a feed told of it before it was committed
}

// CommitTS is the true time of the write, as far as the Memory's unit goes.
func (v version) CommitTS() time.Time { return v.stamp }

var (
	_ Store          = (*Memory)(nil)
	_ le.RaceDecider = (*Memory)(nil)
	_ le.ChangeFeed  = (*Memory)(nil)
)

// NewMemory returns an empty election, whose records are stamped with true time in
// multiples of unit; with none where that is zero.
func NewMemory(unit time.Duration) *Memory {
	return &Memory{unit: unit, current: &le.RaceEntry{}, changed: make(chan struct{})}
}

// Decider returns the record itself: all machines see it alike.
func (s *Memory) Decider(way *Way) le.RaceDecider { return way.Over(s) }

// Current returns the record.
func (s *Memory) Current() (*le.RaceEntry, error) {
	e, _ := s.read()
	return e, nil
}

// read returns the record, and what is closed when there is a newer one.
func (s *Memory) read() (*le.RaceEntry, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.current.Clone()
	e.Token = s.version
	return e, s.changed
}

// ReadCurrent returns the record.
func (s *Memory) ReadCurrent(context.Context) (*le.RaceEntry, error) { return s.Current() }

// WriteEntry replaces the record if it is still the version that entry names.
func (s *Memory) WriteEntry(_ context.Context, entry *le.RaceEntry) (le.LeaderToken, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, _ := entry.Token.(version); v.n != s.version.n {
		return nil, fmt.Errorf("sim: version %d, now %d: %w", v.n, s.version.n, le.ErrLostRace)
	}
	return s.put(entry), nil
}

// Foretell makes the feeds tell of a write that would happen now, as a store does that
// pushes what it has not committed, and returns what undoes that: nil when the write
// would be refused, or another is on its way. The next write that happens ends it.
func (s *Memory) Foretell(entry *le.RaceEntry) (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, _ := entry.Token.(version); v.n != s.version.n || s.rumour != nil {
		return nil
	}
	told := entry.Clone()
	v := s.next()
	v.rumour = true
	told.Token = v
	s.tell(told)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rumour == told {
			s.tell(nil)
		}
	}
}

// tell makes the feeds look again, for a rumour where there is one.
func (s *Memory) tell(rumour *le.RaceEntry) {
	s.rumour = rumour
	close(s.changed)
	s.changed = make(chan struct{})
}

// next is a version that never was.
func (s *Memory) next() version {
	s.issued++
	v := version{n: s.issued}
	if s.unit > 0 {
		v.stamp = time.Now().Round(0).UTC().Truncate(s.unit)
	}
	return v
}

// SetBack puts an earlier record in the place of the present one, as when a store
// is restored from a backup. It is a new version: what was read before can not be
// written over it.
func (s *Memory) SetBack(entry *le.RaceEntry) le.LeaderToken {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.put(entry)
	if entry.ElectionNumber == le.NoElections && !entry.Emptied { // there is none: nothing says since when
		v.stamp = time.Time{}
		s.version = v
	}
	return v
}

func (s *Memory) put(entry *le.RaceEntry) version {
	v := s.next()
	if r := s.rumour; r != nil && sameWrite(r, entry) {
		v.n = r.Token.(version).n // what was told of is committed now
	}
	s.version = v
	s.current = entry.Clone()
	s.current.Token = nil
	s.tell(nil)
	return s.version
}

// told returns what a feed tells of, and what is closed when that is out of date.
func (s *Memory) told() (*le.RaceEntry, <-chan struct{}) {
	e, changed := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rumour != nil && changed == s.changed {
		return s.rumour.Clone(), changed
	}
	return e, changed
}

// Changes follows the record.
func (s *Memory) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		for {
			e, changed := s.told()
			if ctx.Err() != nil || !yield(e, nil) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}
