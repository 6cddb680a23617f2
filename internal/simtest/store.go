package simtest

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// Store is an election's true record: a conditional write that is atomic, and
// nothing that goes wrong. What goes wrong is put on top, by Link.
type Store struct {
	mu      sync.Mutex
	current *le.RaceEntry
	version version
	changed chan struct{} // closed by the next write
}

// version is the Store's token.
type version uint64

// CommitTS is zero: the Store does not say.
func (version) CommitTS() time.Time { return time.Time{} }

var (
	_ le.RaceDecider = (*Store)(nil)
	_ le.ChangeFeed  = (*Store)(nil)
)

// NewStore returns an empty election.
func NewStore() *Store {
	return &Store{current: &le.RaceEntry{}, changed: make(chan struct{})}
}

// read returns the record, and what is closed when there is a newer one.
func (s *Store) read() (*le.RaceEntry, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.current.Clone()
	e.Token = s.version
	return e, s.changed
}

// ReadCurrent returns the record.
func (s *Store) ReadCurrent(context.Context) (*le.RaceEntry, error) {
	e, _ := s.read()
	return e, nil
}

// WriteEntry replaces the record if it is still the version that entry names.
func (s *Store) WriteEntry(_ context.Context, entry *le.RaceEntry) (le.LeaderToken, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, _ := entry.Token.(version)
	if v != s.version {
		return nil, fmt.Errorf("simtest: version %d, now %d: %w", v, s.version, le.ErrLostRace)
	}
	s.version++
	s.current = entry.Clone()
	s.current.Token = nil
	close(s.changed)
	s.changed = make(chan struct{})
	return s.version, nil
}

// Changes follows the record.
func (s *Store) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		for {
			e, changed := s.read()
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
