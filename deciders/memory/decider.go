// Package memory keeps an election in memory: for the tests of programs that elect a leader, and
// for trying the library out. Its elections live and die with the process, so it cannot elect among
// processes.
//
// A Decider is one handle on one election. Candidates and observers with the same Decider, or with
// Handles of it, compete for the same record:
//
//	election := memory.NewDecider()
//	a := leaderelection.Config{Decider: election, LeaderID: "a", ...}
//	b := leaderelection.Config{Decider: election.Handle(), LeaderID: "b", ...}
//
// # What a test can do to it
//
// Entry returns the stored record, and Replace puts another in its place, as a rival or an operator
// would. Inject makes the calls of one handle slow, fail, hang, or lose their request or their
// response, as a network would. So it can cut off a candidate with a handle of its own from the
// others.
//
//	d.Inject(memory.LoseAnswers().On(memory.Write).Times(1))
//
// Tell makes the feeds show an entry that is not stored. Feeds of some stores do so with writes
// that they undo.
//
// # Virtual time
//
// The package has no goroutines and no sockets, and waits by channels only. So it works inside
// testing/synctest bubbles, where a test of hours of fail-overs takes milliseconds. Make the
// channel that you give to Hang inside the bubble, too.
//
// Outside of a bubble, give the candidates and the store one clock that the test moves (package
// clocks/fakeclock):
//
//	clock := fakeclock.New(time.Time{})
//	election := memory.New(&memory.Options{Clock: clock})
package memory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

// Decider is one handle on an election in memory. It is a leaderelection.RaceDecider and a
// leaderelection.ChangeFeed. Its methods may be called by several goroutines at once.
type Decider struct {
	election *election
	faults   atomic.Pointer[Faults]
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
	_ leaderelection.RaceDecider = polled{}
)

// election is the store: one record and its version.
type election struct {
	mu      sync.Mutex                // held for moments only, never while waiting
	entry   *leaderelection.RaceEntry // without Token; nil: there is no record
	token   *token                    // the version of entry, even if that is nil
	rumour  *leaderelection.RaceEntry // what feeds tell of in place of entry; with its Token
	changed chan struct{}             // closed by the next change; made for the first who waits
	clock   clocks.Clock
}

// token is a version of an election's record.
type token struct {
	election *election
	commit   time.Time
}

// CommitTS is when this version was written.
func (t *token) CommitTS() time.Time { return t.commit }

// Options are for a new election.
type Options struct {
	// Clock is the store's clock, which stamps each version (see leaderelection.LeaderToken)
	// and times the delays of its Faults. Candidates compare their own clocks with it. A
	// candidate with a fake clock needs a store with that clock: otherwise its clock is proved
	// wrong, and it never leads. Nil: the system's clock.
	Clock clocks.Clock
}

// NewDecider returns a handle on a new, empty election, stamped by the system's clock.
func NewDecider() *Decider { return New(nil) }

// New returns a handle on a new, empty election. Nil options are the zero Options.
func New(opts *Options) *Decider {
	s := &election{clock: clocks.System()}
	if opts != nil && opts.Clock != nil {
		s.clock = opts.Clock
	}
	s.token = &token{election: s}
	return &Decider{election: s}
}

// Handle returns another handle on the same election, without the faults injected into d: what one
// process among several would have.
func (d *Decider) Handle() *Decider { return &Decider{election: d.election} }

// Polled returns d without its ChangeFeed, for tests of candidates and observers
// that must poll. Faults injected into d hold for it, too.
func (d *Decider) Polled() leaderelection.RaceDecider { return polled{d} }

// polled hides Changes.
type polled struct{ leaderelection.RaceDecider }

// Entry returns a copy of the stored record and its Token, past all faults. If there is none yet,
// it returns a vacant entry.
func (d *Decider) Entry() *leaderelection.RaceEntry {
	d.election.mu.Lock()
	defer d.election.mu.Unlock()
	return d.election.current()
}

// Tell makes every feed of the election show entry, which is not stored: something that a store has
// not committed, see leaderelection.ChangeFeed. No read returns it, and a write with its Token is
// refused. The next write, or Tell(nil), undoes it: then the feeds go on with the record as it is.
// For example, to see how a candidate reacts to a false vacancy:
//
//	e := d.Entry()
//	e.LeaderID = ""
//	e.Extension++
//	d.Tell(e)
func (d *Decider) Tell(entry *leaderelection.RaceEntry) {
	d.election.mu.Lock()
	defer d.election.mu.Unlock()
	d.election.tell(entry)
}

// Replace stores entry, past all faults and whatever is stored now. Entry's Token does not matter.
// Feeds show it. Nil removes the record: the election is then empty, and nothing shows that there
// was a record. A zero RaceEntry empties the record, which still exists: entries read from it are
// Emptied. To depose a leader, replace its record by a rival's:
//
//	e := d.Entry()
//	e.LeaderID, e.Incarnation = "rival", "rival's"
//	e.ElectionNumber++
//	e.Extension = 0
//	d.Replace(e)
func (d *Decider) Replace(entry *leaderelection.RaceEntry) {
	d.election.mu.Lock()
	defer d.election.mu.Unlock()
	d.election.put(entry)
}

// ReadCurrent implements leaderelection.RaceDecider. It is never stale.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(Read, err)
	}
	f := d.fault(Read, nil)
	if err := f.request(ctx, d.election, nil); err != nil {
		return nil, failed(Read, err)
	}
	e := d.Entry()
	if err := f.answer(ctx, d.election); err != nil {
		return nil, failed(Read, err)
	}
	return e, nil
}

// WriteEntry implements leaderelection.RaceDecider. A refusal is a leaderelection.LostRaceError
// with the current record. An entry that a real store could not keep (text that is not UTF-8, a
// negative term) gets an error that wraps leaderelection.ErrPermanent.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed(Write, err)
	}
	if err := record.Check(entry); err != nil {
		return nil, failed(Write, err)
	}
	f := d.fault(Write, entry)
	if f.Late > 0 {
		late := entry.Clone()
		d.election.later(f.Late, func() { _, _ = d.election.write(late) })
	}
	told := func() {}
	defer func() { told() }()
	tell := func() { told = d.election.foretell(entry) }
	if err := f.request(ctx, d.election, tell); err != nil {
		return nil, failed(Write, err)
	}
	t, err := d.election.write(entry)
	told()
	if lost := f.answer(ctx, d.election); lost != nil {
		return nil, failed(Write, lost)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Changes implements leaderelection.ChangeFeed. It merges states that follow each other faster than
// the loop takes them.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		var last leaderelection.LeaderToken
		for {
			e, changed := d.election.after(last)
			if e == nil {
				select {
				case <-ctx.Done():
					return
				case <-changed:
					continue
				}
			}
			f := d.fault(Feed, e)
			err := f.request(ctx, d.election, nil)
			if err == nil {
				err = f.answer(ctx, d.election)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(nil, failed(Feed, err))
				return
			}
			last = e.Token
			if !yield(e, nil) {
				return
			}
		}
	}
}

// write is the conditional write: the whole of the contract.
func (s *election) write(entry *leaderelection.RaceEntry) (*token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuses(entry); err != nil {
		return nil, err
	}
	s.put(entry)
	return s.token, nil
}

// refuses is why entry cannot be written now, or nil.
func (s *election) refuses(entry *leaderelection.RaceEntry) error {
	if entry.Token == nil {
		if s.entry != nil {
			return s.lost()
		}
	} else if t, ours := entry.Token.(*token); !ours {
		return failed(Write, fmt.Errorf("the Token is a %T, of another kind of store: %w", entry.Token, leaderelection.ErrPermanent))
	} else if t != s.token {
		return s.lost()
	}
	return nil
}

func (s *election) lost() error {
	return &leaderelection.LostRaceError{Place: place, Current: s.current()}
}

// put stores a copy of entry. What feeds were told of besides is undone.
func (s *election) put(entry *leaderelection.RaceEntry) {
	told := s.rumour
	s.entry, s.rumour, s.token = nil, nil, s.version()
	if entry != nil {
		s.entry = asStored(entry)
		if told != nil && reflect.DeepEqual(s.entry, withoutToken(told)) {
			s.token = told.Token.(*token) // the version that was told of has been committed
		}
	}
	s.announce()
}

// asStored is a copy of entry in the form in which other stores give it back.
func asStored(entry *leaderelection.RaceEntry) *leaderelection.RaceEntry {
	e := withoutToken(entry)
	e.TermExpiry = e.TermExpiry.Round(0).UTC()
	if len(e.HostPort) == 0 {
		e.HostPort = nil
	}
	if len(e.ConnectionParams) == 0 {
		e.ConnectionParams = nil
	}
	return e
}

func withoutToken(entry *leaderelection.RaceEntry) *leaderelection.RaceEntry {
	e := entry.Clone()
	e.Token = nil
	return e
}

// version returns a version that was never there before.
func (s *election) version() *token {
	return &token{election: s, commit: s.clock.Now().Round(0).UTC()}
}

// announce wakes the feeds.
func (s *election) announce() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// tell makes feeds tell of entry, or again of what is stored.
func (s *election) tell(entry *leaderelection.RaceEntry) {
	s.rumour = nil
	if entry != nil {
		s.rumour = asStored(entry)
		s.rumour.Token = s.version()
	}
	s.announce()
}

// foretell makes feeds tell of a write that would happen now, and returns what
// undoes that.
func (s *election) foretell(entry *leaderelection.RaceEntry) (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses(entry) != nil {
		return func() {}
	}
	s.tell(entry)
	told := s.rumour
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rumour == told && told != nil {
			s.tell(nil)
		}
	}
}

// current returns a copy of what is stored, with its Token.
func (s *election) current() *leaderelection.RaceEntry {
	e := &leaderelection.RaceEntry{}
	if s.entry != nil {
		e = s.entry.Clone()
		e.Emptied = e.ElectionNumber == leaderelection.NoElections
	}
	e.Token = s.token
	return e
}

// after returns what feeds tell of where that is not the version last, else nil and
// a channel that the next change closes.
func (s *election) after(last leaderelection.LeaderToken) (*leaderelection.RaceEntry, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rumour != nil && last != s.rumour.Token {
		return s.rumour.Clone(), nil
	}
	if s.rumour == nil && last != leaderelection.LeaderToken(s.token) {
		return s.current(), nil
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return nil, s.changed
}

// place stands for bucket and object in errors.
const place = "the election in memory"

// failed says what was being done.
func failed(k Kind, err error) error {
	var lost *leaderelection.LostRaceError
	if errors.As(err, &lost) {
		return err
	}
	return fmt.Errorf("leaderelection/memory: %v of %s: %w", k, place, err)
}

// String says that the record is in memory, as other deciders name its place.
func (d *Decider) String() string { return place }
