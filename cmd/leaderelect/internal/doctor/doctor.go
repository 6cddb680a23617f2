// Package doctor examines whether a store, and this machine's clock, are fit for
// an election.
package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/deciders/durability"
)

// Verdict is how a check came out.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warning"
	Fail Verdict = "FAILED"
	Skip Verdict = "not checked"
)

// Finding is one check's outcome.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
	Advice  string  `json:"advice,omitempty"` // what to do about it
	// Unsafe is true of a warning by which two may lead for a while: a confirmed write may be lost.
	Unsafe bool `json:"unsafe,omitempty"`
}

// Exam is what to examine.
type Exam struct {
	Place      leaderelection.RaceDecider // only read
	Scratch    leaderelection.RaceDecider // written to
	Term, Skew time.Duration
	Clocks     leaderelection.ClockPolicy
	Pause      time.Duration // between two writes, where the store limits their rate
	Tell       func(Finding) // told of each finding as it comes
	// Elsewhere is what else to do if the scratch record cannot be written.
	Elsewhere string
	// Bound is how far this machine's clock may be off by its own account, as
	// clocks.Bounded has it.
	Bound func() (time.Duration, error)
}

// Run makes all checks, and reports whether none has failed.
func (x *Exam) Run(ctx context.Context) bool {
	s := &session{Exam: x, ctx: ctx, well: true}
	if !s.read() {
		return false
	}
	s.durability()
	if s.write() {
		s.refused("a write over a newer record is refused", s.stale)
		s.refused("creating a record that exists is refused", nil)
		s.race()
		s.latency()
		s.feed()
		s.clock()
		s.tidy()
	}
	s.bound()
	return s.well
}

type session struct {
	*Exam
	ctx    context.Context
	well   bool
	last   *leaderelection.RaceEntry // what the scratch record is, with its token
	stale  leaderelection.LeaderToken
	reads  []time.Duration
	writes []time.Duration
}

func (s *session) tell(check string, v Verdict, detail, advice string) {
	if v == Fail {
		s.well = false
	}
	s.Tell(Finding{Check: check, Verdict: v, Detail: detail, Advice: advice})
}

// call is a store call's ctx: as long as a campaign would wait, and a second at
// least.
func (s *session) call() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(s.ctx, max(s.Term/4, time.Second), fmt.Errorf("no answer within %v", max(s.Term/4, time.Second)))
}

func (s *session) read() bool {
	ctx, cancel := s.call()
	defer cancel()
	begin := time.Now()
	e, err := s.Place.ReadCurrent(ctx)
	took := time.Since(begin)
	if _, damaged := errors.AsType[*leaderelection.DamagedRecordError](err); damaged {
		s.tell("reading the record", Fail, err.Error(), "if it is this election's: stop all candidates, wait for a term, and run leaderelect reset --force --after N; N is the greatest fencing token that any fence, log or backup has seen")
		return false
	}
	if err != nil {
		s.tell("reading the record", Fail, err.Error(), "check the URL, that the store answers and has the place, and the permission to read it")
		return false
	}
	detail := fmt.Sprintf("in %s: nobody has led yet", Took(took))
	switch {
	case e.ElectionNumber == leaderelection.NoElections:
	case e.Vacant():
		detail = fmt.Sprintf("in %s: vacant after token %d", Took(took), e.ElectionNumber)
	case e.Unsynchronized:
		detail = fmt.Sprintf("in %s: held by %s, token %d", Took(took), state.Name(e.LeaderID), e.ElectionNumber)
	default:
		detail = fmt.Sprintf("in %s: %s, token %d, until %s", Took(took), state.Name(e.LeaderID), e.ElectionNumber, e.TermExpiry.Format(time.RFC3339))
	}
	s.tell("reading the record", OK, detail, "")
	if state.Ahead(e, time.Now(), s.Skew) {
		s.tell("the clocks", Warn, "the term ends later than a right clock can have written: the leader's clock is wrong, or this machine's",
			"set the clocks right; leaderelect status tells within two terms whether that leader lives")
	}
	if e.TermLength > 0 && e.TermLength != s.Term {
		s.tell("the term", Warn, fmt.Sprintf("the record was written with a term of %v, and --term is %v", e.TermLength, s.Term),
			"give all candidates the same --term and --skew")
	}
	if e.ElectionNumber > leaderelection.NoElections && e.Unsynchronized != (s.Clocks == leaderelection.Unsynchronized) {
		word, advice := "without", "give it to all candidates, or to none"
		if e.Unsynchronized {
			word, advice = "as with", advice+"; a leader that doubts the clocks also writes so, and logs why"
		}
		s.tell("the term", Warn, "the record was written "+word+" --clocks unsynchronized", advice)
	}
	return true
}

// examiner is the LeaderID of what an examination writes until it leaves the record vacant.
const examiner = "leaderelect-doctor"

// NewIncarnation returns a random id for what an examination writes.
func NewIncarnation() string { return examiner + "-" + rand.Text() }

// Scratch returns an error unless nobody has led by a record, or an examination wrote it last.
func Scratch(e *leaderelection.RaceEntry) error {
	if e.ElectionNumber == leaderelection.NoElections || strings.HasPrefix(e.Incarnation, examiner+"-") {
		return nil
	}
	return errors.New("an election has this record, and doctor writes over none")
}

func (s *session) entry(token leaderelection.LeaderToken) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{LeaderID: examiner, TermExpiry: time.Now().UTC(), TermLength: s.Term,
		ElectionNumber: s.last.ElectionNumber + 1, Incarnation: NewIncarnation(), Token: token}
}

func (s *session) put(token leaderelection.LeaderToken) error {
	time.Sleep(s.Pause)
	ctx, cancel := s.call()
	defer cancel()
	e := s.entry(token)
	begin := time.Now()
	next, err := s.Scratch.WriteEntry(ctx, e)
	if err != nil {
		return err
	}
	s.writes = append(s.writes, time.Since(begin))
	e.Token = next
	s.stale, s.last = s.last.Token, e
	return nil
}

func (s *session) write() bool {
	const check = "writing a scratch record"
	ctx, cancel := s.call()
	defer cancel()
	advice := "check the permissions for each operation in the store's documentation" + s.Elsewhere
	e, err := s.Scratch.ReadCurrent(ctx)
	if err != nil {
		s.tell(check, Fail, err.Error(), advice)
		return false
	}
	if err := Scratch(e); err != nil {
		s.tell(check, Fail, err.Error(), "name another record by --scratch, which no election has")
		return false
	}
	s.last = e
	// Twice: the first may create it.
	for range 2 {
		if err := s.put(s.last.Token); err != nil {
			s.tell(check, Fail, err.Error(), advice)
			return false
		}
	}
	back, err := s.get()
	switch {
	case err != nil:
		s.tell(check, Fail, "written, but not read back: "+err.Error(), advice)
		return false
	case back.Incarnation != s.last.Incarnation:
		s.tell(check, Warn, "a read after the write answers with an older record", "reads of this store are stale; elections are safe, but slower to notice changes")
	default:
		s.tell(check, OK, "written, and read back", "")
	}
	return true
}

func (s *session) get() (*leaderelection.RaceEntry, error) {
	ctx, cancel := s.call()
	defer cancel()
	begin := time.Now()
	e, err := s.Scratch.ReadCurrent(ctx)
	if err == nil {
		s.reads = append(s.reads, time.Since(begin))
	}
	return e, err
}

const unsafe = "do not hold elections here: two leaders are possible. Use a store, or a mode of it, that enforces conditional writes"

// refused looks whether a write on a token is refused that is not the record's: an old one, or none.
func (s *session) refused(check string, token leaderelection.LeaderToken) {
	time.Sleep(s.Pause)
	ctx, cancel := s.call()
	defer cancel()
	e := s.entry(token)
	_, err := s.Scratch.WriteEntry(ctx, e)
	switch now, readErr := s.get(); {
	case err == nil:
		s.tell(check, Fail, "the store has accepted it", unsafe)
	case readErr == nil && now.Incarnation == e.Incarnation:
		s.tell(check, Fail, "refused, and yet the record has changed", unsafe)
	case errors.Is(err, leaderelection.ErrLostRace):
		s.tell(check, OK, "refused", "")
	default:
		s.tell(check, Warn, "neither accepted nor refused: "+err.Error(), "run this again")
	}
	if now, readErr := s.get(); readErr == nil {
		s.last = now
	}
}

func (s *session) race() {
	const check, rounds, racers = "of many writes at once one wins", 5, 8
	failures := 0
	for range rounds {
		time.Sleep(s.Pause)
		wins := make([]leaderelection.LeaderToken, racers)
		errs := make([]error, racers)
		entries := make([]*leaderelection.RaceEntry, racers)
		var wg sync.WaitGroup
		for i := range racers {
			entries[i] = s.entry(s.last.Token)
			wg.Go(func() {
				ctx, cancel := s.call()
				defer cancel()
				wins[i], errs[i] = s.Scratch.WriteEntry(ctx, entries[i])
			})
		}
		wg.Wait()
		won := 0
		for i := range racers {
			switch {
			case errs[i] == nil:
				won++
			case !errors.Is(errs[i], leaderelection.ErrLostRace):
				failures++
			}
		}
		if won > 1 {
			s.tell(check, Fail, fmt.Sprintf("%d of %d writes on the same version were accepted", won, racers), unsafe)
			return
		}
		if now, err := s.get(); err == nil {
			s.last = now
		}
	}
	detail := fmt.Sprintf("%d rounds of %d", rounds, racers)
	if failures > 0 {
		detail += fmt.Sprintf("; %d were not answered, as where the store limits the rate", failures)
	}
	s.tell(check, OK, detail, "")
}

// latency looks how long calls take, against how long a campaign waits for them.
func (s *session) latency() {
	s.reads, s.writes = nil, nil
	for range 10 {
		if _, err := s.get(); err != nil {
			s.tell("latency", Warn, "a read failed: "+err.Error(), "run this again")
			return
		}
		if err := s.put(s.last.Token); err != nil {
			s.tell("latency", Warn, "a write failed: "+err.Error(), "run this again; is another doctor at work here?")
			return
		}
	}
	for _, m := range []struct {
		what string
		took []time.Duration
	}{{"reads", s.reads}, {"writes", s.writes}} {
		slices.Sort(m.took)
		median, most := m.took[len(m.took)/2], m.took[len(m.took)-1]
		detail := fmt.Sprintf("median %s, longest %s of %d", Took(median), Took(most), len(m.took))
		switch advice := fmt.Sprintf("a call is given up after a quarter of the term, %v: take a --term of %v at least", s.Term/4, (20 * most).Round(100*time.Millisecond)); {
		case most > s.Term/4:
			s.tell("latency of "+m.what, Fail, detail, advice)
		case most > s.Term/20:
			s.tell("latency of "+m.what, Warn, detail, advice)
		default:
			s.tell("latency of "+m.what, OK, detail, "")
		}
	}
}

func (s *session) feed() {
	const check = "the feed of changes"
	f, ok := s.Scratch.(leaderelection.ChangeFeed)
	if !ok {
		s.tell(check, OK, "the store has none: standbys poll, twice a term", "")
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	var begin time.Time
	for e, err := range f.Changes(ctx) {
		switch {
		case err != nil:
			s.tell(check, Warn, err.Error(), "candidates poll where the feed fails: this costs reads, and hand-overs are slower")
			return
		case begin.IsZero():
			begin = time.Now()
			if err := s.put(e.Token); err != nil {
				s.tell(check, Warn, "a write failed: "+err.Error(), "run this again")
				return
			}
		case e.Incarnation == s.last.Incarnation:
			s.tell(check, OK, fmt.Sprintf("a change is told within %s of being asked for", Took(time.Since(begin))), "")
			return
		}
	}
	s.tell(check, Warn, "a change was not told within 10 s", "candidates poll where the feed is silent: hand-overs are slower")
}

func (s *session) tidy() {
	time.Sleep(s.Pause)
	ctx, cancel := s.call()
	defer cancel()
	e := s.entry(s.last.Token)
	e.LeaderID = ""
	if _, err := s.Scratch.WriteEntry(ctx, e); err != nil {
		s.tell("leaving the scratch record vacant", Warn, err.Error(), "no harm is done")
	}
}

// Took is d without needless digits.
func Took(d time.Duration) string {
	if d = d.Round(time.Millisecond / 10); d == 0 {
		return "under 0.1ms"
	}
	return d.String()
}

// Text is f as lines.
func (f *Finding) Text() string {
	s := fmt.Sprintf("%-12s %s: %s", f.Verdict, f.Check, strings.ReplaceAll(f.Detail, "\n", "\n             "))
	if f.Advice != "" {
		s += "\n             -> " + f.Advice
	}
	return s
}

// durability passes on what the store says of its settings: which may lose a write that
// it has confirmed.
func (s *session) durability() {
	const check = "the store's durability"
	x, ok := s.Place.(durability.Examiner)
	if !ok {
		s.tell(check, Skip, "leaderelect does not examine the settings of this kind of store", "see what its package's documentation says that it can lose")
		return
	}
	ctx, cancel := s.call()
	defer cancel()
	warnings, err := x.Durability(ctx)
	for _, w := range warnings {
		s.Tell(Finding{Check: check, Verdict: Warn, Detail: w.Detail, Advice: w.Advice, Unsafe: true})
	}
	switch {
	case err != nil:
		s.tell(check, Skip, err.Error(), "see to this by hand: a confirmed write that is lost is two leaders")
	case len(warnings) == 0:
		s.tell(check, OK, "no setting that can be asked for lets a confirmed write be lost", "")
	}
}

const (
	setClock  = "set this machine's clock by NTP; --skew must cover how far any candidate's clock is from true time"
	askClient = "see how far this machine's is off by chronyc tracking, or timedatectl timesync-status"
)

// unimportant tells of a check that has nothing to compare.
func (s *session) unimportant(check string) bool {
	switch s.Clocks {
	case leaderelection.Unsynchronized:
		s.tell(check, OK, "of no importance: --clocks unsynchronized compares none", "")
	case leaderelection.SharedClock:
		s.tell(check, OK, "of no importance: with --clocks shared all candidates have the same", "")
	default:
		return false
	}
	return true
}

// bound looks how far this machine's clock may be off, as the kernel knows from the
// NTP client.
func (s *session) bound() {
	const check = "the clock, by the kernel's account"
	if s.unimportant(check) {
		return
	}
	switch off, err := s.Bound(); {
	case err != nil:
		s.tell(check, Skip, err.Error(), askClient)
	case off == clocks.Unbounded:
		s.tell(check, Warn, "nothing keeps it right, as far as the kernel knows",
			"run an NTP client; chrony tells the kernel where its configuration says rtcsync. "+askClient)
	case off > s.Skew:
		s.tell(check, Fail, fmt.Sprintf("it may be %s off, and --skew is %v", Took(off), s.Skew), setClock)
	case off > s.Skew/2:
		s.tell(check, Warn, fmt.Sprintf("it may be %s off, and --skew is %v", Took(off), s.Skew), setClock)
	default:
		s.tell(check, OK, fmt.Sprintf("at most %s off", Took(off)), "")
	}
}

// clock compares this machine's clock with the store's.
func (s *session) clock() {
	const check = "the clock, against the store's"
	if s.unimportant(check) {
		return
	}
	if err := s.put(s.last.Token); err != nil {
		s.tell(check, Skip, "a write failed: "+err.Error(), "run this again")
		return
	}
	end := time.Now()
	begin := end.Add(-s.writes[len(s.writes)-1]) // not the pause before it
	at := s.last.Token.CommitTS()
	if at.IsZero() {
		if e, err := s.get(); err == nil && e.Token != nil {
			at = e.Token.CommitTS()
		}
	}
	if at.IsZero() {
		s.tell(check, Skip, "the store does not say its time", askClient)
		return
	}
	// The write happened between begin and end; a time in whole seconds is early by
	// up to one, and by two from a server that makes its Date header once a second.
	early, late := at.Sub(end.Round(0)), at.Sub(begin.Round(0))
	if at.Nanosecond() == 0 {
		late += 2 * time.Second
	}
	var off time.Duration // the least that explains it
	switch {
	case early > 0:
		off = early
	case late < 0:
		off = late
	}
	detail := fmt.Sprintf("the store's agrees with this machine's: it is %s behind at most, %s ahead at most", Took(max(-early, 0)), Took(max(late, 0)))
	switch {
	case early > 0:
		detail = fmt.Sprintf("the store's is %s to %s ahead of this machine's", Took(early), Took(late))
	case late < 0:
		detail = fmt.Sprintf("the store's is %s to %s behind this machine's", Took(-late), Took(-early))
	}
	switch bound, err := s.Bound(); {
	case off.Abs() > s.Skew && err == nil && bound > 0 && bound <= s.Skew:
		s.tell(check, Fail, fmt.Sprintf("%s, which is at most %s off by the kernel's account: the store's clock is wrong", detail, Took(bound)),
			"set the clock of the store's server by NTP; until then run the candidates with --clocks kernel, and they lead Unsynchronized")
	case off.Abs() > s.Skew:
		s.tell(check, Fail, detail, setClock+". If it is right, the store's is wrong: set that")
	case off.Abs() > s.Skew/2:
		s.tell(check, Warn, detail, setClock)
	default:
		s.tell(check, OK, detail, "")
	}
}
