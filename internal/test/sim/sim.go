package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// world is one simulated election.
type world struct {
	Params
	rng      *rand.Rand
	wishes   *rand.Rand // draws what processes ask for beyond a lease
	lives    *rand.Rand // draws who has a lifeline
	epoch    time.Time
	store    Store
	rec      *recorder
	hosts    []*host
	watcher  *observer     // nil: none
	clear    time.Duration // true time at which the present storm is over
	watching bool          // one leader is not to be disturbed
	staged   bool          // nothing happens by chance

	kernels kernels

	surprises chan func()   // to be called by the simulation's own goroutine
	over      chan struct{} // closed when it no longer does so
}

// Result is what a simulation has found.
type Result struct {
	Params     Params
	Violations []string
	Counts     map[string]int
	trace      func(n int) string
}

// String is the report of a failed run.
func (r *Result) String() string {
	return fmt.Sprintf("%v\n%s\n--- the last events (true time, who, what)\n%s", r.Params, strings.Join(r.Violations, "\n"), r.trace(300))
}

// Run simulates the election of p, on store, or in Memory if that is nil. It must be called in a testing/synctest bubble, and returns when every
// candidate has stopped.
func Run(p Params, store Store) *Result {
	w := newWorld(p, store)
	w.live()
	w.finish()
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	return &Result{Params: p, Violations: slices.Clone(w.rec.violations), Counts: maps.Clone(w.rec.counts), trace: w.rec.trace}
}

func newWorld(p Params, store Store) *world {
	epoch := time.Now()
	if store == nil {
		store = NewMemory(p.Stamp)
	}
	w := &world{
		Params: p, rng: rand.New(rand.NewPCG(p.Seed, 1)), wishes: rand.New(rand.NewPCG(p.Seed, 9)), epoch: epoch, store: store, rec: newRecorder(epoch, store, &p),
		surprises: make(chan func()), over: make(chan struct{}),
		kernels: kernels{files: map[string]*process{}, watches: map[*death]struct{}{}}, lives: rand.New(rand.NewPCG(p.Seed, 11)),
	}
	for i := range p.Hosts {
		w.hosts = append(w.hosts, w.newHost(i))
	}
	return w
}

func (w *world) newHost(i int) *host {
	h := &host{w: w, id: string(rune('a' + i))}
	if w.Twins && i == 1 {
		h.id = "a"
	}
	offset, rate, pace := w.offset(), (w.rng.Float64()*2-1)*w.Drift, 1+(w.rng.Float64()*2-1)*w.Drift
	kind := w.rng.IntN(8)
	if w.Wild > 0 || i < w.Skewed {
		kind = 2
	}
	if i < w.Skewed {
		h.skewed, offset = true, w.lie()
	}
	bound := w.Skew
	if i < w.Unsynchronized {
		h.unsynchronized, kind, bound = true, max(kind, 1), 1000*time.Hour
		offset, pace = w.apart(), 1+w.uneven()*[]float64{-1, 1, w.rng.Float64()*2 - 1}[w.rng.IntN(3)]
		rate = pace - 1 // one oscillator for both
	}
	switch kind {
	case 0:
		h.kind, rate, pace = carries, 0, 1
	case 1:
		h.kind, offset, rate, pace = system, 0, 0, 1
	}
	h.bounded = w.Bounded && h.kind == stepping && w.Skew > 0 && !h.skewed && w.rng.IntN(2) == 0
	h.says = w.Skew / 2
	h.clock = NewClock(w.epoch, bound, offset, rate, pace)
	h.clock.spun = func() { go w.rec.fail(h.id, "hot loop: the clock was read %d times at one moment", maxReadings) }
	h.link = NewLink(h.clock, w.Calm, w.Seed, uint64(100+i))
	h.link.pauses = w.Pauses
	return h
}

// offset is one that a clock may have.
func (w *world) offset() time.Duration {
	if w.Wild > 0 && w.rng.IntN(3) == 0 {
		return time.Duration((w.rng.Float64()*2 - 1) * float64(w.Wild))
	}
	switch w.rng.IntN(4) {
	case 0:
		return w.Skew
	case 1:
		return -w.Skew
	}
	return time.Duration((w.rng.Float64()*2 - 1) * float64(w.Skew))
}

// lie is how far a skewed candidate's clock is off: anything from nothing to hours.
func (w *world) lie() time.Duration {
	far := []time.Duration{w.Skew, w.Skew + w.Term/20, 2 * w.Skew, w.Lies, w.Lies}[w.rng.IntN(5)]
	off := w.between(min(w.Skew, far-1), far+1)
	if w.rng.IntN(2) == 0 {
		return -off
	}
	return off
}

// apart is how far an unsynchronized candidate's clock is off.
func (w *world) apart() time.Duration {
	return time.Duration((w.rng.Float64()*2 - 1) * float64(w.Apart))
}

// decider is an actor's way to the record.
func (w *world) decider(a *actor) le.RaceDecider {
	if a.client == nil {
		a.client = w.store.Decider(&Way{a, w.rec})
	}
	d := &Decider{inner: a.client, actor: a, rec: w.rec, tells: w.Tells, lags: w.Lag}
	if w.Feed {
		return Pushed{d}
	}
	return d
}

func (w *world) now() time.Duration { return time.Since(w.epoch) }

// between is a random duration.
func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rng.Int64N(int64(max(b-a, 1))))
}

// live lets storms and calm follow each other.
func (w *world) live() {
	for _, h := range w.hosts {
		if w.rng.IntN(4) > 0 {
			h.launch()
		}
	}
	if w.rng.IntN(2) == 0 {
		w.watcher = w.observe()
	}
	for first := true; w.now() < w.Length && !w.rec.failed(); first = false {
		if !first || w.rng.IntN(2) == 0 {
			w.storm()
		}
		if !w.rec.failed() {
			w.calm()
		}
	}
}

// pass lets time pass, and looks at all views at random moments meanwhile.
func (w *world) pass(d time.Duration) {
	for until := w.now() + d; w.now() < until && !w.rec.failed(); {
		timer := time.NewTimer(min(w.between(1, w.Term/2), until-w.now()))
		w.ask()
		select {
		case <-timer.C:
		case f := <-w.surprises:
			f()
		}
		timer.Stop()
		w.rec.mu.Lock()
		w.rec.check()
		w.rec.mu.Unlock()
	}
}

// ask calls what may be called at any time, from anywhere.
func (w *world) ask() {
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	if h.proc == nil || h.proc.campaign == nil || h.thaw != nil {
		return
	}
	if way := (Way{h.proc.actor, w.rec}); w.rec.wired() && !way.Worked() {
		return // it may have ended: see bars
	}
	c := h.proc.campaign
	e, v, status := c.Leader(), c.View(), c.Status()
	if v == nil || e.Token != nil || status == le.Stopped {
		w.rec.fail(h.proc.name, "View is %v, Leader has a token: %v, Status is %v", v, e.Token != nil, status)
	}
	if last := &h.proc.leader; e.Compare(last) < 0 {
		w.rec.fail(h.proc.name, "Leader goes back to %v", w.rec.short(&e))
	}
	h.proc.leader = e
}

// calm: with all faults over there is a leader again within the bound, and then
// it stays.
func (w *world) calm() {
	w.clear = w.now()
	for _, h := range w.hosts {
		h.resume()
		h.doubt(true)
		h.link.Set(Weather{}, false)
		h.clock.Ambush(nil)
		if !h.skewed {
			h.clock.Restore()
		}
	}
	if w.watcher != nil {
		w.watcher.actor.link.Set(Weather{}, false)
		w.watcher.actor.clock.Restore()
	}
	if w.rec.wired() {
		w.pass(4 * w.Calm) // a first answer that is damaged may end one yet
	}
	w.bereave()
	if w.candidates() == 0 {
		h := w.hosts[w.Skewed+w.rng.IntN(len(w.hosts)-w.Skewed)]
		if h.proc != nil {
			h.leave()
		}
		for h.launch(); h.proc.campaign == nil; h.launch() {
			h.leave()
		}
	}
	w.rec.note("sim", "calm: no faults from now on")
	since := w.now()
	w.rec.mu.Lock()
	w.rec.leaderAgain = 0
	w.rec.mu.Unlock()
	within := w.leaderWithin()
	if w.lastIsMarked() {
		within = max(within, w.measuredWithin())
	}
	longest := within
	if w.Skewed > 0 && w.Hold > 0 { // a hold has no patience
		w.pass(4 * w.Calm)
		longest += w.overdue()
	}
	silent := func() {}
	if w.Nags {
		silent = w.nag(since + within)
	}
	w.pass(since + within - w.now())
	for within < longest && !w.ledAgain() && !w.rec.failed() {
		within = min(within+w.longest(), longest)
		w.pass(since + within - w.now())
	}
	for range 2 * w.Hosts { // each may have taken too early once what another had taken too early
		longer := w.quietUntil() + max(w.poll(), w.standoff()) + w.rest() - since
		if longer <= within || w.ledAgain() {
			break
		}
		within = longer
		w.rec.count("nobody led yet, since it was quiet")
		w.pass(since + within - w.now())
	}
	silent()
	if w.rec.failed() {
		return
	}
	w.rec.mu.Lock()
	w.rec.most("most time to the next leader, in hundredths of the bound", int(100*(w.rec.leaderAgain-since)/within))
	if w.rec.leaderAt < since {
		w.rec.failf("sim", "no leader within %v after the last fault", within)
	}
	w.rec.mu.Unlock()
	w.pass(w.leaderWithin())
	if w.rec.failed() {
		return
	}
	if w.watcher != nil {
		w.watcher.upToDate()
	}
	if w.Wild == 0 && !w.believed() {
		w.watch()
	}
}

// bereave lets the leader crash as the last fault of all, while a replica lags or an
// operator nags: that is where these cost most.
func (w *world) bereave() {
	if w.Lag {
		w.stick()
	}
	if !w.Lag && !w.Nags || w.rng.IntN(2) == 0 || w.candidates() < 2 {
		return
	}
	for _, h := range w.hosts {
		if h.leads() == leading {
			h.crash()
			return
		}
	}
}

// watch: a leader in calm or nearly calm weather stays, whatever happens to the
// others.
func (w *world) watch() {
	w.rec.mu.Lock()
	leader := w.rec.leader
	if leader != nil && leader.p.host.skewed {
		w.rec.mu.Unlock()
		return // its clock may yet be proved wrong
	}
	if leader != nil && w.Skewed > 0 {
		if e := &w.rec.records[len(w.rec.records)-1]; e.Vacant() || !leader.p.incarnations[e.Incarnation] {
			w.rec.mu.Unlock()
			return // it was robbed, and does not know yet
		}
	}
	if leader == nil || !leader.inFuture() {
		w.rec.failf("sim", "no leader, though it has been calm for %v", 2*w.leaderWithin())
		w.rec.mu.Unlock()
		return
	}
	w.rec.watched = leader.p
	w.rec.mu.Unlock()
	w.watching = true
	defer func() { w.watching = false }()
	until := w.now() + w.between(2*w.Term, 6*w.Term)
	w.clear = until
	spare := leader.p.host
	spare.link.Set(w.harmless(spare.proc, until), false)
	w.rec.note("sim", "to the others anything may happen until %.3f, %s is to lead", until.Seconds(), spare.id)
	for w.now() < until && !w.rec.failed() {
		w.happen(until, spare)
		w.pass(min(w.between(0, w.Term), until-w.now()))
	}
	w.rec.mu.Lock()
	w.rec.watched = nil
	w.rec.mu.Unlock()
}

// candidates is how many processes are running whose clocks are right and that do
// not stop by themselves, as batch jobs do. It forgets those whose job is done.
func (w *world) candidates() int {
	n := 0
	for _, h := range w.hosts {
		if h.proc != nil && h.proc.leavingNow() {
			h.proc = nil
		}
		if h.proc != nil && h.proc.campaign != nil && !h.skewed {
			n++
		}
	}
	return n
}

// finish stops all candidates, and waits for every process that ever was.
func (w *world) finish() {
	close(w.over)
	time.Sleep(w.clear - w.now()) // where a violation has cut a storm short
	// Who had begun to leave while there were faults may have given up since, without a call.
	calls := map[*process]int{}
	for _, h := range w.hosts {
		for _, p := range h.all {
			if p.leavingNow() {
				calls[p] = p.calls()
			}
		}
		h.resume()
		h.link.Set(Weather{}, false)
		h.clock.Ambush(nil)
		if h.proc != nil {
			h.leave()
		}
	}
	if o := w.watcher; o != nil {
		o.actor.link.Set(Weather{}, false)
		told := w.now()
		o.cancel(errLeft)
		<-o.done
		if took := w.now() - told; took > time.Second {
			w.rec.fail("observer", "Watch took %v to return", took)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.leaderWithin()+3*w.longest()+w.Drain+time.Hour+10*w.Lies)
	defer cancel()
	deadline := w.now() + w.leaderWithin()
	for _, h := range w.hosts {
		for _, p := range h.all {
			select {
			case <-p.done:
				if !p.actor.dead.Load() && w.now() > deadline {
					w.rec.fail(p.name, "took %v to stop, with no faults left", w.now()-deadline+w.leaderWithin())
				}
			case <-ctx.Done():
				w.rec.fail(p.name, "HANG: it was told to stop %v ago", w.now()-deadline)
			}
		}
	}
	w.rec.mu.Lock()
	last := &w.rec.records[len(w.rec.records)-1]
	for _, h := range w.hosts {
		for _, p := range h.all {
			before, began := calls[p]
			gaveUp := began && p.actor.calls == before || p.actor.quiet > p.overAt // what is kept while it is quiet is not released
			if wall, mono := h.clock.Both(); !p.actor.dead.Load() && !gaveUp && !last.Vacant() && p.incarnations[last.Incarnation] && w.runs(p, last, reading{wall, mono}) {
				w.rec.failf(p.name, "has stopped in calm weather, and has not released %v", w.rec.short(last))
			}
		}
	}
	w.rec.mu.Unlock()
	time.Sleep(time.Second) // for what goes on by itself, within its bounds
	if w.rec.wired() {
		time.Sleep(w.longest()) // for requests that nobody answers
	}
}
