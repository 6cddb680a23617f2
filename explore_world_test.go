package leaderelection

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/explore"
)

// This file is the world around the pure machine, for an exploration of all its states: a store, hosts with a lease each,
// the steps that may happen, and the judge. The judge sees only views, fencing tokens, releases and work.
// explore_test.go has the scopes, and says which worlds are the same.

const tick = time.Second

// scope is what may happen in an exploration.
type scope struct {
	name     string
	hosts    int
	observer bool // the last host only observes
	policy   policy
	offs     []int8 // where clocks may be, in ticks
	sets     bool   // clocks may be set among offs
	farBack  int8   // the first host's clock may be set to this while it leads, and is right again afterwards
	turns    bool   // clocks may be set back by a tick, again and again, and each host looks before and after
	polls    bool   // standbys read at any time
	reads    int    // the further steps of a read. 0: it is answered at once. 1: it is answered later. 2: it executes later, too
	lost     int    // writes of each host that were given up, and may still land
	late     bool   // their answers may still be told
	retries  bool   // a client's retry: a write that has landed is refused
	current  bool   // a refusal brings the record along
	pushes   int    // a feed tells 1 what is, 2 also what was, 3 also what never was
	keep     int    // states of the past that are kept for that, for stale reads, and for set-backs
	stale    bool   // reads of the past
	leaves   bool   // leaving and coming back; work that ends later than the view
	nowork   bool   // but the work ends with the view
	suspends bool
	crashes  int8 // each with a restart
	proofs   bool // of death
	asks     int8 // an operator's requests
	mixed    bool // the first host does not compare clocks, and its own is at wrong[0]
	clones   int8 // the first two hosts are clones, and draw so many equal ids
	slips    bool // a monotonic clock gains a tick in a term and drift
	stamps   bool // the store tells its time
	bounds   bool // a clock that goes wrong knows its own bound at once

	// One broken condition at a time.
	backs     int8   // how often the store is set back
	same      bool   // and its old version comes back, too
	empties   bool   // or the record is emptied
	jumps     int8   // how often the first host's clock, or the store's, goes wrong
	wrong     []int8 // to one of these
	storeOffs []int8 // the same of the store's clock

	full   bool   // all orders of steps: see urgent
	begin  []does // what has happened before
	strict bool   // what nobody could see is no excuse
	finds  string // a fault that is unavoidable here, or known: an exploration must find it
}

// world is a state. A step makes another one of it, and never changes it.
type world struct {
	*scope
	ticks        int // true time
	store        *RaceEntry
	past         []*RaceEntry // of the store, the newest first
	hosts        []*host
	own          int            // a bit for each host that is not shared with the world before
	top          ElectionNumber // the greatest by which anybody has led
	asksLeft     int8
	crashesLeft  int8
	backsLeft    int8
	jumpsLeft    int8
	storeOff     int8
	lost         [2][]*RaceEntry // states that the first set-back has lost, and the second
	ids, process int             // made up so far
	fault        error
}

// host is a machine with one process.
type host struct {
	process int  // its number
	stood   int  // ticks that its monotonic clock has missed; negative: gained
	off     int8 // of its wall clock
	leaves  bool // it does not wish to lead
	work    bool // of a leadership runs
	drained bool // its time is over, so the lease is not kept for it
	slipped int  // true time of the last slip of the monotonic clock, and a period; it is even until then
	draws   int8 // ids that its clone draws as well
	calls   []apiCall
	l       *lease
	seen    ElectionNumber // the greatest that it was told
	sign    int8           // the last set-back of which it has read a sign
	signed  []signed
}

// signed is an acquisition that was asked for after a sign of a set-back.
type signed struct {
	incarnation string
	sign        int8
}

// apiCall is a call of the store.
type apiCall struct {
	kind  OpKind
	by    int        // the process
	put   *RaceEntry // what a write writes
	over  *RaceEntry // and what it is conditional on
	begun instant
	done  bool       // the store has executed it
	ok    bool       // and not refused it
	got   *RaceEntry // what it shows
	lost  bool       // given up
}

// stored is a version of the record. It is told from others by its address.
type stored struct {
	at  time.Time
	by  int           // the process that wrote the lease last
	low time.Duration // how far that one's clock was ahead of at when its write began
}

func (s *stored) CommitTS() time.Time { return s.at }

// The steps. Arg is explained with each in possible.
const (
	doTick = int8(iota)
	doIssue
	doPoll
	doExecute
	doStale
	doAnswer
	doRefuse
	doGiveUp
	doDrop
	doPush
	doLook
	doSet
	doSlip
	doCrash
	doProve
	doLeave
	doReturn
	doWorkEnds
	doDrain
	doAsk
	doSetBack
	doEmpty
	doJump
	doStoreJump
)

var stepNames = []string{"Tick", "Issue", "Poll", "Execute", "Stale", "Answer", "Refuse", "GiveUp", "Drop", "Push", "Look", "Set", "Slip", "Crash",
	"Prove", "Leave", "Return", "WorkEnds", "Drain", "Ask", "SetBack", "Empty", "Jump", "StoreJump"}

// does is a step: what happens, at which host, and an argument.
type does struct{ what, who, arg int8 }

func (d does) step() explore.Step {
	return explore.Step(uint8(d.what))<<16 | explore.Step(uint8(d.who))<<8 | explore.Step(uint8(d.arg))
}

func stepOf(s explore.Step) does { return does{int8(s >> 16), int8(s >> 8), int8(s)} }

var hostNames = []string{"a", "b", "c", "d"}

func ticks(n int8) time.Duration { return time.Duration(n) * tick }

func newWorld(s *scope, offs []int8) *world {
	w := &world{scope: s, asksLeft: s.asks, crashesLeft: s.crashes, backsLeft: s.backs, jumpsLeft: s.jumps, top: 1}
	w.store = &RaceEntry{ElectionNumber: 1, TermLength: s.policy.term, TermExpiry: zero, Token: &stored{by: -1}}
	for i := range s.hosts {
		w.hosts = append(w.hosts, &host{off: offs[i]})
		if s.mixed && i == 0 {
			w.hosts[i].off = s.wrong[0]
		}
		if i < 2 {
			w.hosts[i].draws = s.clones
		}
		w.starts(i)
	}
	w.own = -1
	for _, d := range s.begin {
		w.do(d)
	}
	return w
}

// starts has host i begin another process.
func (w *world) starts(i int) {
	h, p := w.hosts[i], w.policy
	p.id, p.measured = hostNames[i], p.measured || w.mixed && i == 0
	if w.clones > 0 && i < 2 {
		p.id = "x"
	}
	*h = host{process: w.process, off: h.off, stood: h.stood, slipped: h.slipped, draws: h.draws, calls: h.calls, l: newLease(&p), leaves: w.observes(i)}
	w.process++
}

func (w *world) observes(i int) bool { return w.observer && i == w.scope.hosts-1 }

// time is true time. If stores tell it, it does not look rounded.
func (w *world) time() time.Time {
	now := zero.Add(time.Duration(w.ticks) * tick)
	if w.stamps {
		now = now.Add(1)
	}
	return now
}

// at is host i's look at its clocks.
func (w *world) at(i int) instant {
	h := w.hosts[i]
	wall := w.time().Add(ticks(h.off))
	if w.clones > 0 {
		wall = wall.Add(time.Duration(i)) // clones draw the same, or write in the same nanosecond, but not both
	}
	return instant{wall, time.Hour + time.Duration(w.ticks-h.stood)*tick}
}

// next returns the world after a step, or nil if the step changes nothing.
func (w *world) next(d does) *world {
	n := *w
	n.hosts, n.own = slices.Clone(w.hosts), 0
	n.past, n.lost[0], n.lost[1] = slices.Clip(w.past), slices.Clip(w.lost[0]), slices.Clip(w.lost[1])
	if !n.do(d) {
		return nil
	}
	return &n
}

// host returns host i to be changed.
func (w *world) host(i int) *host {
	if w.own>>i&1 == 0 {
		w.own |= 1 << i
		h := *w.hosts[i]
		l := *h.l
		l.writes, l.older, l.dead = slices.Clone(l.writes), slices.Clone(l.older), maps.Clone(l.dead)
		if l.lead != nil {
			lead := *l.lead
			l.lead = &lead
		}
		h.l, h.calls, h.signed = &l, slices.Clone(h.calls), slices.Clip(h.signed)
		w.hosts[i] = &h
	}
	return w.hosts[i]
}

// waits reports whether host i waits for the answer to a call.
func (h *host) waits() bool {
	return slices.ContainsFunc(h.calls, func(c apiCall) bool { return !c.lost })
}

// leads reports whether host i has a lead that its loop has not seen end.
func (w *world) leads(i int) bool {
	d := w.hosts[i].l.lead
	return d != nil && !w.expired(i, &d.view)
}

// expired reports whether a view of host i is over for good. Of others, the next look decides.
func (w *world) expired(i int, v *viewEnd) bool {
	at := w.at(i)
	if w.sets && v.apart == 0 {
		at.wall, _ = w.shows(i)
		return !v.live(at)
	}
	return v.mono <= at.mono || !w.sets && !w.turns && w.jumps == 0 && w.farBack == 0 && !v.live(at)
}

// live is what the work on host i is told when it asks now.
func (w *world) live(i int) bool {
	d := w.hosts[i].l.lead
	return d != nil && d.view.live(w.at(i))
}

// doomed reports whether the store can only refuse call c, or has: a version never comes again.
func (w *world) doomed(c *apiCall) bool {
	return c.kind != OpRead && !c.ok && (c.done || c.over != w.store && !w.same && w.pushes < 3)
}

// urgent are the steps that are taken at once, before all others. That a write is refused tells its host nothing but that, at any time.
// So a history in which it is told later has the same end as one in which it is told now, and its host then does nothing for a while.
func (w *world) urgent(y func(what int8, who, arg int)) (is bool) {
	for i, h := range w.hosts {
		for k := range h.calls {
			switch c := &h.calls[k]; {
			case w.full || w.current || !w.doomed(c):
				continue
			case c.lost:
				y(doDrop, i, k)
			case w.backs > 0 || w.stale: // else it says nothing what was refused
				y(doGiveUp, i, k)
				fallthrough
			default:
				y(doAnswer, i, k)
			}
			is = true
		}
	}
	return is
}

// possible calls yield for each step that may be possible.
func (w *world) possible(yield func(does)) {
	y := func(what int8, who, arg int) { yield(does{what, int8(who), int8(arg)}) }
	if w.urgent(y) {
		return
	}
	for all := range 1 << len(w.hosts) { // arg: which machines are suspended meanwhile, a bit each
		if all == 0 || w.suspends {
			y(doTick, 0, all)
		}
	}
	for i, h := range w.hosts {
		lost := 0
		for k := range h.calls { // arg: the index of the call
			c := &h.calls[k]
			if c.lost {
				lost++
				y(doDrop, i, k)
			}
			if !c.done {
				y(doExecute, i, k)
				for p := range w.past {
					if c.kind == OpRead && w.stale {
						y(doStale, i, k|p<<4) // and of the past state
					}
				}
			}
		}
		for k := range h.calls {
			c := &h.calls[k]
			if c.done {
				y(doAnswer, i, k)
			}
			if c.kind != OpRead && !c.lost {
				if c.ok && w.retries {
					y(doRefuse, i, k)
				}
				// That a call is given up tells its host nothing but that, at any time: it may as well be given up at once.
				if lost < w.scope.lost && (w.full || !c.done && c.begun.mono == w.at(i).mono) {
					y(doGiveUp, i, k)
				}
			}
		}
		w.local(i, func(what int8, arg int) { y(what, i, arg) })
	}
	if w.asksLeft > 0 && !w.store.Vacant() && w.store.Successor == "" {
		y(doAsk, 0, 0)               // for anybody
		y(doAsk, w.scope.hosts-1, 1) // for that host
	}
	if w.backsLeft > 0 {
		for p := range w.past {
			y(doSetBack, 0, p)
		}
		if w.empties && w.store.ElectionNumber > 1 {
			y(doEmpty, 0, 0)
		}
	}
	if w.jumpsLeft > 0 {
		for _, o := range w.storeOffs {
			y(doStoreJump, 0, int(o))
		}
	}
}

// local are the steps of a host, but for its calls.
func (w *world) local(i int, y func(what int8, arg int)) {
	h := w.hosts[i]
	if !h.waits() {
		if !w.observes(i) {
			y(doIssue, 0)
		}
		if (w.polls || w.observes(i)) && !w.leads(i) {
			y(doPoll, 0)
		}
		for p := range w.past {
			if w.stale && w.reads == 0 && !w.observes(i) {
				y(doStale, p<<4)
			}
		}
	}
	if h.l.measured && w.leads(i) {
		y(doLook, 0)
	}
	if w.pushes >= 1 {
		y(doPush, 0)
	}
	for p := range w.past {
		if w.pushes >= 2 {
			y(doPush, 1+p) // the past state
		}
	}
	for j := range w.hosts {
		for k, c := range w.hosts[j].calls {
			if w.pushes >= 3 && c.put != nil && !c.done {
				y(doPush, 64|j<<3|k) // what a call of host j would write
			}
		}
	}
	for _, o := range w.offs {
		if w.sets && o != h.off {
			y(doSet, int(o))
		}
	}
	switch {
	case w.turns:
		y(doSet, int(h.off-1))
	case w.farBack != 0 && i == 0 && h.off != w.farBack && w.leads(i):
		y(doSet, int(w.farBack))
	}
	if w.slips && h.slipped <= w.ticks {
		y(doSlip, 0)
	}
	if w.crashesLeft > 0 && !w.observes(i) {
		y(doCrash, 0)
	}
	for k, c := range [...]claim{h.l.newest, h.l.base} {
		if w.proofs && c.of != nil && !c.of.Vacant() && !h.l.dead[c.of.Incarnation] && w.died(c.of.Token.(*stored).by) {
			y(doProve, k)
		}
	}
	switch {
	case w.observes(i):
	case w.leaves && !h.leaves:
		y(doLeave, 0)
	case h.leaves && !w.leads(i) && !h.work:
		y(doReturn, 0)
	}
	if h.work && (!w.leads(i) || h.leaves || h.l.lead.asked != "") {
		y(doWorkEnds, 0)
		if w.leads(i) && !h.drained {
			y(doDrain, 0)
		}
	}
	if w.jumpsLeft > 0 && i == 0 {
		for _, o := range w.wrong {
			if o != h.off {
				y(doJump, int(o))
			}
		}
	}
}

// do makes a step. It reports whether anything may have changed.
func (w *world) do(d does) bool {
	i, arg := int(d.who), int(d.arg)
	switch d.what {
	case doTick:
		w.ticks++
		for j := range w.hosts {
			if arg>>j&1 == 1 {
				w.host(j).stood++
			}
			w.rights(j)
		}
		return true
	case doAsk:
		r := *w.store
		r.Extension++
		r.Successor = AnySuccessor
		if arg == 1 {
			r.Successor = hostNames[i]
		}
		w.asksLeft--
		w.put(&r, w.store.Token.(*stored).by, time.Time{})
		return true
	case doSetBack, doEmpty:
		w.setBack(d)
		return true
	case doStoreJump:
		w.jumpsLeft--
		changed := w.storeOff != d.arg
		w.storeOff = d.arg
		return changed
	}
	h := w.host(i)
	before := h.l.lead
	if (d.what == doExecute || d.what == doAnswer) && arg >= len(h.calls) {
		return false
	}
	switch d.what {
	case doIssue:
		if !w.issue(i) && h.l.lead == before {
			return false
		}
	case doPoll:
		w.read(i)
	case doExecute:
		w.execute(i, arg)
	case doStale:
		if w.reads == 0 {
			w.learn(i, w.past[arg>>4], wasRead, w.at(i))
		} else {
			c := &h.calls[arg&15]
			c.done, c.ok, c.got = true, true, w.past[arg>>4]
		}
	case doAnswer:
		w.answer(i, arg)
	case doRefuse:
		c := h.calls[arg]
		h.calls = slices.Delete(h.calls, arg, arg+1)
		h.l.open(c.over)
		if w.current {
			w.learn(i, w.store, wasRead, c.begun)
		}
	case doGiveUp:
		c := &h.calls[arg]
		c.lost = true
		h.l.open(nil)
		if c.done && !(c.ok && w.late) {
			h.calls = slices.Delete(h.calls, arg, arg+1)
		}
	case doDrop:
		h.calls = slices.Delete(h.calls, arg, arg+1)
	case doPush:
		w.learn(i, w.told(arg), wasPushed, w.at(i))
	case doLook:
		h.l.look(w.at(i))
	case doSet:
		if w.turns { // a suspend shows, if it ended before that
			h.l.look(w.at(i))
		}
		if h.off = d.arg; w.turns {
			h.l.look(w.at(i))
		}
	case doJump:
		w.jumpsLeft--
		if h.off = d.arg; w.bounds {
			h.l.look(w.at(i))
			h.l.bounded(ticks(d.arg).Abs())
		}
	case doSlip: // that two clocks gain is as if the third lost
		h.stood--
		h.slipped = w.ticks + int((h.l.term+drift(h.l.term, h.l.skew))/tick)
	case doCrash:
		w.crash(i)
		return true
	case doProve:
		h.l.dead[[...]claim{h.l.newest, h.l.base}[arg].of.Incarnation] = true
	case doLeave:
		h.leaves = true
		if h.l.lead != nil && !h.work {
			h.l.leave(ErrResigned)
		}
	case doReturn:
		h.leaves = false
	case doDrain:
		h.drained = true
	case doWorkEnds:
		h.work = false
		h.l.look(w.at(i))
		if h.l.lead != nil {
			h.leaves = h.leaves || h.l.lead.asked != "" // it stays out for a while
			h.l.leave(ErrResigned)
		}
	}
	w.note(i, before)
	return true
}

// rights sets a clock right that was set far back under a leader who leads no more.
func (w *world) rights(i int) {
	if w.farBack != 0 && w.hosts[i].off == w.farBack && !w.leads(i) {
		w.host(i).off = w.offs[0]
	}
}

// told is what a feed tells: see local.
func (w *world) told(arg int) *RaceEntry {
	switch {
	case arg >= 64:
		h := w.hosts[arg>>3&7]
		r := *h.calls[arg&7].put
		r.Token = &stored{by: h.process}
		return &r
	case arg > 0:
		return w.past[arg-1]
	}
	return w.store
}

// wish is what the driver of host i would like: see Campaign.wish.
func (w *world) wish(i int) wish {
	h := w.hosts[i]
	return wish{lead: !h.leaves, work: h.work && h.l.lead == nil, keep: h.l.lead != nil && !h.drained, extend: tick}
}

// issue has host i make the call that is due. It reports whether there is one.
func (w *world) issue(i int) bool {
	h, now := w.hosts[i], w.at(i)
	h.l.look(now)
	kind := h.l.next(now, w.wish(i))
	if h.l.base.of == nil {
		kind = OpRead // the driver's first poll
	}
	switch kind {
	case "":
		return false
	case OpRead:
		w.read(i)
		return true
	}
	over := h.l.base.of
	r := h.l.issue(now, kind, w.draw(i), w.draw(i))
	switch {
	case kind == OpRelease && h.work:
		w.fail("%s releases while its work runs", hostNames[i])
	case kind == OpRelease && w.live(i):
		w.fail("%s releases while its view is true", hostNames[i])
	case kind == OpRelease && over.Token.(*stored).by != h.process:
		w.fail("%s releases what it has not written", hostNames[i])
	case kind == OpAcquire && h.work:
		w.fail("%s acquires while its work runs", hostNames[i])
	case kind == OpAcquire && r.ElectionNumber <= h.seen:
		w.fail("%s asks for number %d, but was told of %d", hostNames[i], r.ElectionNumber, h.seen)
	}
	if kind == OpAcquire && h.sign > 0 {
		h.signed = append(h.signed, signed{r.Incarnation, h.sign})
	}
	h.calls = append(h.calls, apiCall{kind: kind, by: h.process, put: r, over: over, begun: now})
	return true
}

var randomIDs = func() (all []string) {
	for i := range 2000 {
		all = append(all, fmt.Sprint("id", i))
	}
	return all
}()

// draw makes up an id for host i.
func (w *world) draw(i int) string {
	if h := w.hosts[i]; h.draws > 0 {
		h.draws--
		return randomIDs[h.draws]
	}
	w.ids++
	return randomIDs[w.ids+int(w.clones)]
}

// read begins a read of host i, and does of it what the scope does at once.
func (w *world) read(i int) {
	if w.reads == 0 {
		w.learn(i, w.store, wasRead, w.at(i))
		return
	}
	h := w.hosts[i]
	h.calls = append(h.calls, apiCall{kind: OpRead, by: h.process, begun: w.at(i)})
	if w.reads == 1 {
		w.execute(i, len(h.calls)-1)
	}
}

// execute has the store execute call k of host i.
func (w *world) execute(i, k int) {
	h := w.hosts[i]
	c := &h.calls[k]
	c.done, c.got = true, w.store
	switch {
	case c.kind == OpRead:
		c.ok = true
	case c.over == w.store:
		r := *c.put
		if r.Compare(w.store) <= 0 && w.backsLeft == w.backs {
			w.fail("the write of %s does not raise the order", hostNames[i])
		}
		if s := w.store; c.kind == OpAcquire && s.Vacant() && s.Successor != "" && s.Successor != AnySuccessor && s.Successor != r.LeaderID &&
			w.jumps == 0 && w.time().Before(s.TermExpiry.Add(-w.policy.skew)) {
			w.fail("%s takes what is reserved for %s", hostNames[i], s.Successor)
		}
		if c.kind == OpRelease && h.work && !c.lost {
			w.fail("a release of %s lands while its work runs", hostNames[i])
		}
		w.put(&r, c.by, c.begun.wall)
		c.ok, c.got = true, w.store
	}
	if c.lost && !(c.ok && w.late) {
		h.calls = slices.Delete(h.calls, k, k+1)
	}
}

// put makes r the record, by a write of a process that began at a time of its wall clock.
func (w *world) put(r *RaceEntry, by int, began time.Time) {
	if w.recalls() {
		w.past = append([]*RaceEntry{w.store}, w.past[:min(len(w.past), w.keep-1)]...)
	}
	v := &stored{by: by}
	if w.stamps {
		v.at = w.time().Add(ticks(w.storeOff))
		if was := w.store.Token.(*stored); began.IsZero() {
			began = was.at.Add(was.low) // a request: the write that it shows began then
		}
		v.low = began.Sub(v.at)
	}
	r.Token = v
	w.store = r
}

// recalls reports whether anything may still show a state of the past.
func (w *world) recalls() bool {
	return w.keep > 0 && (w.backsLeft > 0 || w.stale || w.pushes > 1)
}

// answer tells host i of its call k.
func (w *world) answer(i, k int) {
	h := w.hosts[i]
	c := h.calls[k]
	h.calls = slices.Delete(h.calls, k, k+1)
	switch {
	case c.lost:
		w.learn(i, c.got, wasPushed, c.begun)
	case c.kind == OpRead:
		w.learn(i, c.got, wasRead, c.begun)
	case c.ok:
		w.learn(i, c.got, wasWritten, c.begun)
	default:
		h.l.open(c.over)
		if w.current {
			w.learn(i, c.got, wasRead, c.begun)
		}
	}
}

// learn tells host i of a state, and notes whether that is a sign of a set-back: the host reads what is older than something lost
// that it knew, or its own acquisition over such a state is accepted.
func (w *world) learn(i int, r *RaceEntry, how source, began instant) {
	h := w.hosts[i]
	h.seen = max(h.seen, r.ElectionNumber)
	if n := h.l.newest.of; w.backsLeft < w.backs && how != wasPushed {
		if r.Emptied {
			h.sign = w.backs - w.backsLeft
		}
		own := h.l.origin(r)
		for k := range w.lost {
			taken := own != nil && own.kind == OpAcquire && !own.done && h.l.old(own.over)
			if n != nil && (taken || h.l.old(r)) && slices.Contains(w.lost[k], n) && !slices.Contains(w.lost[k], r) {
				if h.sign = max(h.sign, int8(k+1)); taken {
					h.signed = append(h.signed, signed{r.Incarnation, h.sign})
				}
			}
		}
	}
	if h.l.learn(r, how, began, w.at(i)) && h.l.lead != nil && !h.l.mine(r) {
		w.fail("%s leads, and has learned of a newer record of another", hostNames[i])
	}
}

// note follows host i's leadership as the driver does: see Campaign.follow.
func (w *world) note(i int, before *lead) {
	h := w.hosts[i]
	d := h.l.lead
	w.rights(i)
	switch {
	case d == before:
		return
	case d == nil:
		h.drained = false
		return
	case h.leaves:
		h.l.refuse(ErrResigned)
		return
	case h.work:
		w.fail("%s leads while its earlier work runs", hostNames[i])
	case d.number <= w.top && w.backsLeft == w.backs:
		w.fail("%s leads by %d, but %d has led", hostNames[i], d.number, w.top)
	}
	h.work = (w.leaves || w.asks > 0) && !w.nowork
	w.top = max(w.top, d.number)
}

// died reports whether a process has crashed.
func (w *world) died(process int) bool {
	return !slices.ContainsFunc(w.hosts, func(h *host) bool { return h.process == process })
}

// crash ends the process of host i, and begins another. Of its calls some may still land.
func (w *world) crash(i int) {
	h := w.hosts[i]
	w.crashesLeft--
	calls := h.calls
	h.calls = nil
	for _, c := range calls {
		if c.kind != OpRead && !c.done && len(h.calls) < w.scope.lost {
			c.lost = true
			h.calls = append(h.calls, c)
		}
	}
	w.starts(i)
}

func (w *world) setBack(d does) {
	w.backsLeft--
	all := append([]*RaceEntry{w.store}, w.past...)
	lost := all
	r := &RaceEntry{Emptied: true, Token: &stored{by: -1}}
	w.past = nil
	if d.what == doSetBack {
		cut := int(d.arg) + 1
		lost, w.past = all[:cut], all[cut+1:]
		if r = all[cut]; !w.same {
			c, v := *r, *r.Token.(*stored)
			c.Token, r = &v, &c
		}
	}
	if w.past = append(slices.Clip(lost), w.past...); !w.recalls() {
		w.past = nil // else a replica may not be set back, or a feed be late
	}
	w.lost[w.backs-w.backsLeft-1] = lost
	w.store = r
}

func (w *world) fail(format string, a ...any) {
	if w.fault == nil {
		w.fault = fmt.Errorf(format, a...)
	}
}

// judge finds what must never be.
func (w *world) judge() error {
	for i := range w.hosts {
		for j := range w.hosts {
			if i == j || !w.live(i) {
				continue
			}
			if i < j && w.live(j) && !w.excused(i, j) && !w.excused(j, i) {
				return fmt.Errorf("two views: %s by %d and %s by %d", hostNames[i], w.hosts[i].l.lead.number, hostNames[j], w.hosts[j].l.lead.number)
			}
			if w.jumps == 0 && w.lapsed(i, j) {
				return fmt.Errorf("%s takes the term for over by which %s leads", hostNames[j], hostNames[i])
			}
		}
	}
	return w.fault
}

// gone reports whether set-back k has lost what was written by the write id.
func (w *world) gone(k int, id string) bool {
	return id != "" && slices.ContainsFunc(w.lost[k], func(r *RaceEntry) bool { return r.WriteID == id })
}

// signedBy is the last set-back of which host i had read a sign when it asked for that incarnation.
func (h *host) signedBy(incarnation string) (sign int8) {
	for _, s := range h.signed {
		if s.incarnation == incarnation {
			sign = s.sign
		}
	}
	return sign
}

// excused reports whether j may lead beside i: the store has lost i's record, and j had read no sign of that.
func (w *world) excused(i, j int) bool {
	if w.strict {
		return false
	}
	lead, other := w.hosts[i].l.lead.confirmed.of, w.hosts[j].l.lead.confirmed.of
	for k := range w.lost {
		if w.gone(k, lead.WriteID) && w.hosts[j].signedBy(other.Incarnation) <= int8(k) {
			return true
		}
	}
	return false
}

// lapsed reports whether host j would tell an observer that the term is over by which i leads.
func (w *world) lapsed(i, j int) bool {
	of, l := w.hosts[i].l.lead.confirmed.of, w.hosts[j].l
	for _, c := range []claim{l.newest, l.base} {
		if r := c.of; r != nil && !r.Vacant() && r.ElectionNumber == of.ElectionNumber && r.WriteID == of.WriteID && r.Incarnation == of.Incarnation && l.claims.end(c).reached(w.at(j)) {
			return true
		}
	}
	return false
}

// lives reports an error unless somebody leads within the time that docs/operations.md gives, if nothing fails any more: all
// look at each tick, all calls are answered at once, and all wish to lead.
func (w *world) lives() error {
	p := &w.policy
	// A term that was extended just now, by a clock that is ahead; and a candidate that stays out for a term.
	within := p.term + 3*p.skew + tick + p.hold
	if w.leaves || w.asks > 0 {
		within += p.term
	}
	if w.backs > 0 || w.jumps > 0 || w.farBack != 0 || w.mixed || p.measured || w.bounds || w.clones > 0 || w.pushes > 1 { // patience, and a quiet
		within += p.term + p.term + drift(p.term, p.skew) + tick
	}
	n := *w
	n.own, n.hosts = 0, slices.Clone(w.hosts)
	w = &n
	for i, h := range w.hosts {
		if !h.leaves || h.work || w.observes(i) || h.l.quiet > w.at(i).mono || w.leads(i) || w.backsLeft < w.backs {
			continue
		}
		for n := 0; n < 9 && w.works(i); n++ { // it may read on while a write that is lost could still come
		}
		if r := w.store; !r.Vacant() && r.Token.(*stored).by == h.process && r.TermExpiry.After(w.at(i).wall) { // else a write has come late, and keeps nobody out
			return fmt.Errorf("%s has left, and still holds the record", hostNames[i])
		}
	}
	for i := range w.hosts {
		h := w.host(i)
		h.work, h.leaves = false, w.observes(i)
		if h.l.look(w.at(i)); h.l.lead != nil && (h.drained || h.l.lead.asked != "") {
			h.l.leave(ErrResigned)
			h.drained = false
		}
	}
	for range within/tick + 1 {
		for busy := true; busy; {
			busy = false
			for i := range w.hosts {
				busy = w.works(i) || busy
				w.hosts[i].work = false
				if w.live(i) {
					return nil
				}
			}
		}
		w.do(does{doTick, 0, 0})
	}
	return fmt.Errorf("nobody leads %v after the last fault", within)
}

// works has all calls of host i executed and answered, and the next one made. It reports whether there is one.
func (w *world) works(i int) bool {
	for k := len(w.hosts[i].calls) - 1; k >= 0; k-- {
		if !w.hosts[i].calls[k].done {
			w.do(does{doExecute, int8(i), int8(k)})
		}
	}
	for len(w.hosts[i].calls) > 0 {
		w.do(does{doAnswer, int8(i), 0})
	}
	return w.do(does{doIssue, int8(i), 0})
}

// describe says what a record is.
func describe(r *RaceEntry) string {
	if r == nil {
		return "-"
	}
	s := fmt.Sprintf("%d.%d", r.ElectionNumber, r.Extension)
	switch {
	case r.Emptied:
		s += " emptied"
	case r.Vacant():
		s += " vacant"
	default:
		s += fmt.Sprintf(" %s<%d", r.LeaderID, r.TermExpiry.Sub(zero)/tick)
	}
	if r.Successor != "" {
		s += " for " + r.Successor
	}
	if r.Unsynchronized {
		s += " marked"
	}
	return s
}

// String is a line of a history: the store, and of each host what it knows, and by what it leads.
func (w *world) String() string {
	s := fmt.Sprintf("t=%-2d store %-12s", w.ticks, describe(w.store))
	for i, h := range w.hosts {
		at := w.at(i)
		l := fmt.Sprintf(" | %s knows %s", hostNames[i], describe(h.l.newest.of))
		if h.l.base.of != h.l.newest.of {
			l += ", read " + describe(h.l.base.of)
		}
		if h.off != 0 {
			l += fmt.Sprintf(", clock %+d", h.off)
		}
		if q := h.l.quiet - at.mono; q > 0 {
			l += fmt.Sprintf(", quiet %v", q)
		}
		if h.l.unsure {
			l += ", unsure"
		}
		if h.l.mistrust {
			l += ", mistrusts"
		}
		for _, c := range h.calls {
			l += fmt.Sprintf(", %s", c.kind)
			if c.put != nil {
				l += " of " + describe(c.put)
			}
			for what, is := range map[string]bool{"lost": c.lost, "landed": c.done && c.ok, "refused": c.done && !c.ok} {
				if is {
					l += " " + what
				}
			}
		}
		if d := h.l.lead; d != nil && d.view.live(at) {
			l += fmt.Sprintf(", LEADS by %d for %v", d.number, min(d.view.mono-at.mono, d.view.wall.Sub(at.wall)))
		}
		for what, is := range map[string]bool{"works": h.work, "leaves": h.leaves} {
			if is {
				l += ", " + what
			}
		}
		s += fmt.Sprintf("%-44s", l)
	}
	return strings.TrimRight(s, " ")
}

// history plays steps, and says each. It returns how it ends: the last world, and its fault.
func (s *scope) history(initial int, steps []does) (lines []string, last *world, err error) {
	w := newWorld(s, s.offsets()[initial])
	lines = append(lines, fmt.Sprintf("%-16s %v", "", w))
	for n, d := range steps {
		next := w.next(d)
		if next == nil {
			return lines, w, fmt.Errorf("step %d, %v, is not possible", n, d)
		}
		w = next
		lines = append(lines, fmt.Sprintf("%-16s %v", d, w))
		if err := w.judge(); err != nil {
			if n < len(steps)-1 {
				err = errors.Join(err, fmt.Errorf("after %d steps of %d", n+1, len(steps)))
			}
			return lines, w, err
		}
	}
	return lines, w, nil
}

func (d does) String() string {
	who := hostNames[d.who]
	if d.what == doTick || d.what == doSetBack || d.what == doEmpty || d.what == doStoreJump || d.what == doAsk {
		who = ""
	}
	s := strings.TrimSpace(who + " " + stepNames[d.what])
	if d.arg != 0 {
		s += fmt.Sprint(" ", d.arg)
	}
	return s
}
