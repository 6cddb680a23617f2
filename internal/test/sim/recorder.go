package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/sim/spec"
)

// actor is whoever has a clock and a link to the store: a candidate's process,
// an observer, an operator.
type actor struct {
	name  string
	clock *Clock
	link  *Link
	ahead time.Duration // an operator's clock
	dead  atomic.Bool   // crashed: nothing that it still does counts, or reaches the store
	proc  *process      // nil where it is no candidate

	client le.RaceDecider // the store's

	bound int // of calls in a second; 0: none

	// The recorder's, under its lock:
	told     map[state]sighting
	terms    map[term]reading  // when it was first told of each, by its clock
	newest   *le.RaceEntry     // that it was told of
	greatest le.ElectionNumber // the same
	heard    *le.RaceEntry     // the newest, as it stands after the last proof
	proved   bool              // it was read or written, and not only pushed
	older    []term            // read since that, and older
	doubts   bool              // it has read one of these since the newest was last proved, at most
	certain  bool              // and at least: in its caller's patience
	quiet    time.Duration     // by its monotonic clock it is quiet until then: see hears, at most
	surely   time.Duration     // and at least
	late     bool              // what it is told now came after its caller's patience: it may have been given up
	readAt   reading           // when the last read that was answered began, by its clock
	readTrue time.Duration     // and in true time
	open     time.Duration     // true time at or after which a read must begin before the next write; 0 where nothing is open
	pending  *op               // the last call, until it is answered
	recent   []time.Duration
	calls    int  // all
	flip     bool // the next read is the replica's
	worked   bool // a call has worked
	wrote    bool // a write has
}

// recorder sees everything that happens, in true time, and holds it to the rules.
// It is the judge and knows nothing of how the campaign works.
type recorder struct {
	epoch   time.Time
	store   Store
	landing chan struct{} // a lock that may be held while virtual time passes

	mu                  sync.Mutex
	term                time.Duration // the longest
	wild                bool          // clocks go beyond their bound, and nobody is safe
	drift               float64
	measuredWait        time.Duration // see Params
	lies                bool          // clocks go beyond their bound, and are compared with the store's
	believed            bool          // but the store does not tell its time
	strangers           bool          // others' tools change the record
	lines               []line
	violations          []string
	records             []le.RaceEntry          // all that were written, in order; the first is the empty one
	times               []time.Duration         // and when
	spec                spec.Record             // what may happen to them
	replica             int                     // which of them one that lags holds
	wroteUnsynchronized map[string]bool         // by Incarnation: it has Unsynchronized set
	backs               []int                   // which of them the store was set back to
	pairs               map[[2]*leadership]bool // that have been counted
	leaderships         []*leadership           // whose views may be alive, or were lately
	holds               []hold                  // of all leaderships
	watched             *process                // whose leadership may not end now
	leader              *leadership             // whose view was in the future when last one was
	leaderAt            time.Duration           // and when that was
	leaderAgain         time.Duration           // the first such moment since it is calm; 0: none
	counts              map[string]int
}

// line is one line of the trace, not yet formatted.
type line struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

// maxLines is how much of a trace is kept.
const maxLines = 4000

func newRecorder(epoch time.Time, store Store, p *Params) *recorder {
	r := &recorder{
		epoch: epoch, store: store, landing: make(chan struct{}, 1), term: p.longest(), wild: p.Wild > 0 || p.believed(), drift: p.Drift, measuredWait: p.measuredWait(),
		lies: p.Skewed > 0, believed: p.believed(), strangers: p.Strangers, counts: map[string]int{}, wroteUnsynchronized: map[string]bool{}, pairs: map[[2]*leadership]bool{},
	}
	first := le.RaceEntry{}
	if e, err := store.Current(); err == nil {
		first = *e
	}
	r.records, r.times = []le.RaceEntry{first}, []time.Duration{0}
	r.spec = spec.Record{Skew: p.Skew, Drift: p.allowance(), Untimed: r.wild || r.lies}
	return r
}

func (r *recorder) now() time.Duration { return time.Since(r.epoch) }

// logf adds a line to the trace. With the lock.
func (r *recorder) logf(who, format string, args ...any) {
	if len(r.lines) >= 2*maxLines {
		r.lines = append(r.lines[:0], r.lines[maxLines:]...)
	}
	r.lines = append(r.lines, line{r.now(), who, format, args})
}

// note adds a line to the trace. Without the lock.
func (r *recorder) note(who, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logf(who, format, args...)
}

const violation = "VIOLATION: "

// failf records a violation. With the lock.
func (r *recorder) failf(who, format string, args ...any) {
	r.logf(who, violation+format, args...)
	if len(r.violations) < 8 {
		r.violations = append(r.violations, fmt.Sprintf("%12.6f %s: ", r.now().Seconds(), who)+fmt.Sprintf(format, args...))
	}
}

// count counts something that has happened. Without the lock.
func (r *recorder) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// most keeps the greatest of a kind. With the lock.
func (r *recorder) most(what string, n int) { r.counts[what] = max(r.counts[what], n) }

// fail records a violation. Without the lock.
func (r *recorder) fail(who, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failf(who, format, args...)
}

// failed reports whether a rule was broken.
func (r *recorder) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.violations) > 0
}

// trace is the last n lines, or if a rule was broken, n around that.
func (r *recorder) trace(n int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	end := len(r.lines)
	for i := range r.lines {
		if strings.HasPrefix(r.lines[i].format, violation) {
			end = min(end, i+n/6)
			break
		}
	}
	for _, l := range r.lines[max(0, end-n):end] {
		fmt.Fprintf(&b, "%12.6f %-10s ", l.at.Seconds(), l.who)
		fmt.Fprintf(&b, l.format, l.args...)
		b.WriteByte('\n')
	}
	return b.String()
}

// short is a record in a few words.
type short struct {
	e     *le.RaceEntry
	epoch time.Time
}

func (s short) String() string {
	e := s.e
	if e == nil {
		return "-"
	}
	who := e.LeaderID
	if who == "" {
		who = "vacant"
	}
	t := fmt.Sprintf("%d.%d %s", e.ElectionNumber, e.Extension, who)
	if !e.TermExpiry.IsZero() {
		t += fmt.Sprintf(" until %.6f", e.TermExpiry.Sub(s.epoch.Round(0)).Seconds())
	}
	if e.Successor != "" {
		t += " for " + e.Successor
	}
	return t
}

func (r *recorder) short(e *le.RaceEntry) short { return short{e, r.epoch} }

// calling is told of a call before it is made.
func (r *recorder) calling(ctx context.Context, a *actor, write *le.RaceEntry) *op {
	wall, mono := a.clock.Latest()
	r.mu.Lock()
	defer r.mu.Unlock()
	a.calls++
	o := &op{ctx: ctx, actor: a, write: write, at: r.now(), wall: wall, mono: mono, readAt: a.readAt, greatest: a.greatest, newest: a.heard, worked: a.worked, wrote: a.wrote}
	if n := a.heard; n != nil {
		o.sure = a.proved || a.proc != nil && !a.proc.incarnations[n.Incarnation]
	}
	if a.dead.Load() {
		return o
	}
	r.rate(a)
	if p := a.pending; p != nil && p.write != nil {
		a.open = o.at // given up: its outcome is an open question
	}
	a.pending = o
	if write == nil {
		return o
	}
	if a.open != 0 && a.proc != nil {
		r.failf(a.name, "writes %v though the outcome of its last write is open and it has not read since", r.short(write))
	}
	if a.proc != nil {
		r.loud(o)
		r.writing(a.proc, o)
	}
	return o
}

// rate holds an actor to a bounded number of calls in any second.
func (r *recorder) rate(a *actor) {
	now := r.now()
	a.recent = append(a.recent, now)
	for now-a.recent[0] > time.Second {
		a.recent = a.recent[1:]
	}
	if a.bound > 0 {
		r.most("most calls a second, in hundredths of the bound", 100*len(a.recent)/a.bound)
	}
	if a.bound > 0 && len(a.recent) > a.bound {
		r.failf(a.name, "hot loop: %d store calls within a second, the bound is %d", len(a.recent), a.bound)
		a.recent = a.recent[:1]
	}
}

// answered is told what a call returned to its caller.
func (r *recorder) answered(o *op, e *le.RaceEntry, token le.LeaderToken, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := o.actor
	if a.dead.Load() {
		return
	}
	if a.pending == o {
		a.pending = nil
	}
	a.worked = a.worked || err == nil
	a.wrote = a.wrote || err == nil && o.write != nil
	inTime := o.ctx.Err() == nil // else it has been given up
	_, now := a.clock.Both()
	a.late = a.proc != nil && now-o.mono >= a.proc.term/4
	if o.write != nil {
		r.writeAnswered(o, token, err, inTime)
		return
	}
	if err != nil {
		r.logf(a.name, "read, began at %.6f: %v", o.at.Seconds(), err)
		return
	}
	r.logf(a.name, "read, began at %.6f: %v", o.at.Seconds(), r.short(e))
	how := wasPushed
	if inTime {
		how = wasRead
	}
	r.confirm(a, e, o, how)
	if inTime {
		a.readAt, a.readTrue = reading{o.wall, o.mono}, o.at
		if o.at >= a.open {
			a.open = 0
		}
	}
}

func (r *recorder) writeAnswered(o *op, token le.LeaderToken, err error, inTime bool) {
	a := o.actor
	r.logf(a.name, "wrote %v, began at %.6f: %v", r.short(o.write), o.at.Seconds(), err)
	var lost *le.LostRaceError
	switch {
	case err == nil:
		e := o.write.Clone()
		e.Token = token
		how := wasPushed
		if inTime {
			how = wasWritten
		}
		r.confirm(a, e, nil, how)
	case inTime && errors.As(err, &lost) && lost.Current != nil:
		r.confirm(a, lost.Current, o, wasRead)
		a.readAt, a.readTrue, a.open = reading{o.wall, o.mono}, o.at, 0
	case inTime:
		a.open = r.now()
	case a.readTrue < o.at:
		a.open = max(a.open, o.at)
	}
	if errors.Is(err, le.ErrLostRace) && o.landed {
		r.counts["fault: a client that tried again was refused what it had written"]++
	}
}

// opens is told that an actor opens a feed.
func (r *recorder) opens(a *actor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.dead.Load() {
		r.rate(a)
		r.logf(a.name, "opens a feed")
	}
}

// hindered counts what has gone wrong with a record that a feed was to deliver.
func (r *recorder) hindered(n news) {
	for what, is := range map[string]bool{
		"a feed failed": n.fail, "a feed fell silent": n.silent && !n.fail, "a feed repeated itself": n.repeat,
		"a feed told of an earlier record": n.old > 0, "a feed was late by more than a term": n.delay+n.hang > r.term,
	} {
		if is {
			r.count("fault: " + what)
		}
	}
}

// lagging returns what a replica that is stuck holds, for every second read of an
// actor; else nil.
func (r *recorder) lagging(a *actor) *le.RaceEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.flip = !a.flip
	if !a.flip || r.replica == 0 {
		return nil
	}
	if r.replica < len(r.records)-1 {
		r.counts["fault: a read from a replica that lags"]++
	}
	return r.records[r.replica].Clone()
}

// earlier returns the record that was there n writes ago, or nil.
func (r *recorder) earlier(n int) *le.RaceEntry {
	if n == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := len(r.records) - 1 - n; i > 0 {
		return r.records[i].Clone()
	}
	return nil
}
