package leaderelection

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The tables of this file and of lease_test.go are the nine rules of docs/rules.md, without goroutines or a store.

// The term and skew of the tables, and what two clocks run apart in that term.
const (
	tT = 15 * time.Second
	tS = time.Second
	tD = tS
)

var zero = time.Unix(1_800_000_000, 0).UTC()

// at is both clocks of a right machine, d after the beginning.
func at(d time.Duration) instant { return off(d, 0) }

// off is the same with a wall clock that is ahead.
func off(d, ahead time.Duration) instant { return instant{zero.Add(d + ahead), time.Hour + d} }

// version is the token of one version of a record.
type version struct {
	of string
	at time.Time
}

func (v version) CommitTS() time.Time { return v.at }

// held is what another leader wrote at d.
func held(number ElectionNumber, d time.Duration, change ...func(*RaceEntry)) *RaceEntry {
	r := &RaceEntry{LeaderID: "rival", ElectionNumber: number, Incarnation: fmt.Sprint("i", number), WriteID: fmt.Sprint("w", number, d),
		TermExpiry: zero.Add(d + tT), TermLength: tT}
	return changed(r, change...)
}

// vacant is a record that was released before the beginning.
func vacant(number ElectionNumber, change ...func(*RaceEntry)) *RaceEntry {
	return changed(&RaceEntry{ElectionNumber: number, Extension: 9, Incarnation: "x", TermLength: tT, TermExpiry: zero.Add(-time.Minute)}, change...)
}

func changed(r *RaceEntry, change ...func(*RaceEntry)) *RaceEntry {
	for _, f := range change {
		f(r)
	}
	if r.Token == nil {
		r.Token = version{of: fmt.Sprint(*r)}
	}
	return r
}

func extended(n uint64) func(*RaceEntry)      { return func(r *RaceEntry) { r.Extension = n } }
func hold(d time.Duration) func(*RaceEntry)   { return func(r *RaceEntry) { r.Hold = d } }
func ofTerm(d time.Duration) func(*RaceEntry) { return func(r *RaceEntry) { r.TermLength = d } }
func until(d time.Duration) func(*RaceEntry) {
	return func(r *RaceEntry) { r.TermExpiry = zero.Add(d) }
}
func by(incarnation string) func(*RaceEntry) {
	return func(r *RaceEntry) { r.Incarnation = incarnation }
}
func unmeasured(r *RaceEntry) { r.Unsynchronized = true }
func emptied(r *RaceEntry)    { *r = RaceEntry{Emptied: true, Token: version{of: r.Incarnation}} }
func reserved(id string, d time.Duration) func(*RaceEntry) {
	return func(r *RaceEntry) { r.Successor, r.TermExpiry = id, zero.Add(d) }
}

// asked is r with an operator's request.
func asked(r *RaceEntry, id string) *RaceEntry {
	r = r.Clone()
	r.Extension, r.Successor, r.Token = r.Extension+1, id, version{of: "request"}
	return r
}

// learned is one thing that a candidate learns.
type learned struct {
	d      time.Duration
	of     *RaceEntry
	pushed bool // by a feed
}

// never is when somebody acquires who does not.
const never = time.Duration(-1)

// history is what a candidate learns, and when it leads by that if it reads and writes whenever its lease asks for
// that. The lease's own alarm wakes it.
type history struct {
	set    func(*lease)
	ahead  time.Duration // of the wall clock
	learns []learned
	store  *RaceEntry // what the store has, if the last read has not shown that
	want   time.Duration
	marked bool
	reads  int // how many the lease asks for; 0: any
}

// play checks the history.
func (h history) play(t *testing.T) {
	l := newLease(&policy{id: "a", term: tT, skew: tS, checked: true})
	if h.set != nil {
		h.set(l)
	}
	var record *RaceEntry // what a read shows
	now, reads, writes, w := time.Duration(0), 0, 0, wish{lead: true}
	clock := func() instant { return off(now, h.ahead) }
	for i := 0; now < 3*time.Hour; {
		for ; i < len(h.learns) && h.learns[i].d <= now; i++ {
			e, how := h.learns[i], wasRead
			if e.pushed {
				how = wasPushed
			}
			if record == nil || !e.pushed {
				record = e.of
			}
			l.learn(e.of, how, clock(), clock())
		}
		kind := l.next(clock(), w)
		for calls := 0; kind != ""; calls++ {
			if calls == 6 {
				t.Fatalf("after %v the lease asks for a %s, again and again", now, kind)
			}
			switch kind {
			case OpRead:
				reads++
				l.learn(record, wasRead, clock(), clock())
			case OpAcquire:
				over := l.base.of
				writes++
				r := l.issue(clock(), kind, fmt.Sprint("id", writes), fmt.Sprint("a", writes))
				if h.store != nil && !sameVersion(over.Token, h.store.Token) {
					l.open(over)
					record = h.store
					break
				}
				record = lands(r)
				l.learn(r, wasWritten, clock(), clock())
				if l.lead == nil {
					break
				}
				if now != h.want || r.Unsynchronized != h.marked {
					t.Errorf("leads after %v, marked %t; want %v, %t", now, r.Unsynchronized, h.want, h.marked)
				}
				if h.reads > 0 && reads != h.reads {
					t.Errorf("%d reads, want %d", reads, h.reads)
				}
				return
			}
			kind = l.next(clock(), w)
		}
		wake := newAlarm(clock())
		l.wake(&wake, w)
		next := now + max(wake.in, 1)
		if i < len(h.learns) {
			next = min(next, h.learns[i].d)
		}
		now = next
	}
	if h.want != never {
		t.Errorf("it does not lead in hours, want %v", h.want)
	}
}

func playAll(t *testing.T, all map[string]history) {
	for name, h := range all {
		t.Run(name, h.play)
	}
}

// mistrusts has the lease know that its clock is wrong.
func mistrusts(l *lease) { l.bounded(time.Hour) }

func measured(l *lease) { l.measured, l.checked = true, false }

func isDead(incarnation string) func(*lease) {
	return func(l *lease) { l.dead[incarnation] = true }
}

// Rule 3: when a claim is over for those who compare wall clocks.
func TestLeaseRule3Claim(t *testing.T) {
	const s, far = time.Second, 2 * time.Hour
	playAll(t, map[string]history{
		"a term":                      {learns: []learned{{d: 0, of: held(3, 0)}}, want: tT + tS, reads: 1},
		"a clock behind":              {ahead: -tS, learns: []learned{{d: 0, of: held(3, 0)}}, want: tT + 2*tS},
		"a clock ahead":               {ahead: tS, learns: []learned{{d: 0, of: held(3, 0)}}, want: tT},
		"of another length":           {learns: []learned{{d: 0, of: held(3, 0, ofTerm(time.Minute), until(time.Minute))}}, want: time.Minute + tS},
		"an extension":                {learns: []learned{{d: 0, of: held(3, 0)}, {d: 8 * s, of: held(3, 7*s, extended(1))}}, want: 7*s + tT + tS},
		"a request is no extension":   {learns: []learned{{d: 0, of: held(3, 0)}, {d: 5 * s, of: asked(held(3, 0), "b")}}, want: tT + tS},
		"a vacancy":                   {learns: []learned{{d: s, of: vacant(3)}}, want: s, reads: 0},
		"nobody has led":              {learns: []learned{{d: s, of: &RaceEntry{}}}, want: s},
		"reserved for another":        {learns: []learned{{d: 0, of: vacant(3, reserved("c", tT))}}, want: tT},
		"for this one":                {learns: []learned{{d: s, of: vacant(3, reserved("a", tT))}}, want: s},
		"for anybody":                 {learns: []learned{{d: s, of: vacant(3, reserved(AnySuccessor, tT))}}, want: s},
		"reserved by a wrong clock":   {learns: []learned{{d: 0, of: vacant(3, reserved("c", 5*far))}}, want: tT + tD},
		"a hold":                      {learns: []learned{{d: 0, of: held(3, 0, hold(time.Minute))}}, want: tT + time.Minute + tS},
		"a hold has no patience":      {learns: []learned{{d: 0, of: held(3, 0, hold(time.Minute), until(far))}}, want: far + time.Minute + tS},
		"a hold of one's own neither": {set: func(l *lease) { l.hold = time.Hour }, learns: []learned{{d: 0, of: held(3, 0, until(far))}}, want: far + tS},
		"a vacancy on hold":           {learns: []learned{{d: 0, of: vacant(3, hold(time.Minute), until(0))}}, want: time.Minute + tS},
		"a hold that is over":         {learns: []learned{{d: 0, of: vacant(3, hold(1), until(0))}}, want: tS + 1},
		"by a wrong clock":            {learns: []learned{{d: 0, of: vacant(3, hold(time.Minute), until(far))}}, want: time.Minute + tD + time.Minute/15},
		"the dead":                    {set: isDead("i3"), learns: []learned{{d: s, of: held(3, 0)}}, want: s},
		"their hold":                  {set: isDead("i3"), learns: []learned{{d: 0, of: held(3, 0, hold(time.Minute))}}, want: tT + time.Minute + tS},
		"the dead of another":         {set: isDead("i2"), learns: []learned{{d: 0, of: held(3, 0)}}, want: tT + tS},
		"patience":                    {learns: []learned{{d: s, of: held(3, 0, until(far))}}, want: s + 2*tT, marked: true},
		"patience of a wide skew":     {set: func(l *lease) { l.skew = 6 * s }, learns: []learned{{d: s, of: held(3, 0, until(far))}}, want: s + tT + 18*s, marked: true},
		"not less than right clocks":  {set: func(l *lease) { l.skew = 6 * s }, learns: []learned{{d: 0, of: held(3, 0, until(tT+12*s))}}, want: tT + 18*s},
		"patience, a sign of life":    {learns: []learned{{d: s, of: held(3, 0, until(far))}, {d: 8 * s, of: held(3, 7*s, until(far+7*s), extended(1))}}, want: 8*s + 2*tT, marked: true},
		"patience, a request is none": {learns: []learned{{d: s, of: held(3, 0, until(far))}, {d: 8 * s, of: asked(held(3, 0, until(far)), "b")}}, want: s + 2*tT, marked: true},
		"patience for one term":       {learns: []learned{{d: s, of: held(3, 0, until(far))}, {d: 8 * s, of: held(3, 7*s, extended(1))}}, want: 7*s + tT + tS},
		"patience, of a longer term":  {learns: []learned{{d: 0, of: held(3, 0, ofTerm(4*tT), until(4*tT))}, {d: s, of: held(4, s, until(far))}}, want: s + 8*tT, marked: true},
	})
}

// Rule 4: when a claim is over for those who compare none, or if its writer compares none. Who leads by that marks
// its record.
func TestLeaseRule4Measured(t *testing.T) {
	const s, far = time.Second, 2 * time.Hour
	playAll(t, map[string]history{
		"the policy":                 {set: measured, learns: []learned{{d: s, of: held(3, -5*s)}}, want: s + tT + tD, marked: true},
		"a term of no length":        {set: measured, learns: []learned{{d: s, of: held(3, 0, ofTerm(0))}}, want: s + tT + tD, marked: true},
		"the shortest term":          {set: measured, learns: []learned{{d: s, of: held(3, 0, ofTerm(1))}}, want: s + 1 + tD, marked: true},
		"a long term":                {set: measured, learns: []learned{{d: s, of: held(3, 0, ofTerm(200*s))}}, want: s + 202*s, marked: true},
		"a request is no extension":  {set: measured, learns: []learned{{d: 0, of: held(3, 0)}, {d: 5 * s, of: asked(held(3, 0), "b")}}, want: tT + tD, marked: true},
		"the record":                 {learns: []learned{{d: s, of: held(3, -tT, unmeasured)}}, want: s + tT + tD},
		"the record, a far end":      {learns: []learned{{d: s, of: held(3, far, unmeasured)}}, want: s + tT + tD},
		"a reservation":              {learns: []learned{{d: s, of: vacant(3, reserved("c", -tT), unmeasured)}}, want: s + tT + tD},
		"a hold":                     {set: measured, learns: []learned{{d: s, of: held(3, 0, hold(tT))}}, want: s + 2*(tT+tD), marked: true},
		"a vacancy on hold":          {set: measured, learns: []learned{{d: s, of: vacant(3, hold(tT))}}, want: s + tT + 2*tD, marked: true},
		"a vacancy":                  {set: measured, learns: []learned{{d: s, of: vacant(3)}}, want: s, marked: true},
		"an older state, later seen": {set: measured, learns: []learned{{d: 0, of: held(5, 0)}, {d: 10 * s, of: held(4, 0)}}, want: 10*s + 2*(tT+tD), marked: true},
		"mistrust":                   {set: mistrusts, learns: []learned{{d: s, of: held(3, -far)}}, want: s + tT + tD, marked: true},
		"mistrust, a vacancy":        {set: mistrusts, learns: []learned{{d: s, of: vacant(3)}}, want: s + tT + tD, marked: true},
		"mistrust, one's own":        {set: mistrusts, learns: []learned{{d: s, of: vacant(3, reserved("a", tT))}}, want: s + tT + tD, marked: true},
		"mistrust, the dead":         {set: func(l *lease) { mistrusts(l); isDead("i3")(l) }, learns: []learned{{d: s, of: held(3, 0)}}, want: s, marked: true},
		"mistrust, a hold to come":   {set: func(l *lease) { mistrusts(l); l.hold = 1 }, learns: []learned{{d: s, of: vacant(3)}}, want: never},
		"mistrust that ends in time": {set: func(l *lease) { mistrusts(l); l.bounded(0) }, learns: []learned{{d: s, of: vacant(3)}}, want: s},
	})
}

// Rule 5: both what is on record and the newest state that is known must be over, by a look that came after.
func TestLeaseRule5Acquire(t *testing.T) {
	const s = time.Second
	playAll(t, map[string]history{
		"an older push is no news":      {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3), pushed: true}}, want: tT + tS},
		"a pushed term is read":         {learns: []learned{{d: 0, of: held(3, 0), pushed: true}}, want: tT + tS, reads: 1},
		"a pushed vacancy is enough":    {learns: []learned{{d: s, of: vacant(3), pushed: true}}, want: s},
		"the dead must be read":         {set: isDead("i3"), learns: []learned{{d: s, of: held(3, 0), pushed: true}}, want: s, reads: 1},
		"a rumour that is read":         {learns: []learned{{d: 0, of: held(4, 0)}, {d: s, of: held(5, s), pushed: true}, {d: 2 * s, of: held(5, 2*s, by("other"), until(3*s))}}, want: 2*s + tT + tD},
		"a rumour that is not":          {learns: []learned{{d: 0, of: held(4, 0)}, {d: s, of: held(5, s), pushed: true}, {d: 2 * s, of: held(4, 0)}}, want: s + tT + tS + tT + tD},
		"a rumour of the same, told on": {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: held(5, s, by("other")), pushed: true}}, want: tT + tS},
		"a newer term under an older":   {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: held(4, -tT)}, {d: 2 * s, of: held(5, 0)}}, want: tT + tS},
	})
}

// Rule 6: what begins the quiet, and when it ends.
func TestLeaseRule6Quiet(t *testing.T) {
	const s = time.Second
	long := func(n ElectionNumber) *RaceEntry { return held(n, 0, ofTerm(4*tT), until(4*tT)) }
	playAll(t, map[string]history{
		"to a living leader":              {learns: []learned{{d: 0, of: held(5, 0)}, {d: 3 * s, of: held(4, 2*s)}}, want: 2*s + tT + tS + tT + tD},
		"to a vacancy":                    {learns: []learned{{d: 0, of: held(5, 0)}, {d: 2 * s, of: vacant(3)}}, want: tT + tS + tT + tD},
		"from a vacancy":                  {learns: []learned{{d: 0, of: vacant(5, reserved("c", tT))}, {d: 2 * s, of: vacant(3)}}, want: tT + tT + tD},
		"twice":                           {learns: []learned{{d: 0, of: held(5, -10*s)}, {d: 3 * s, of: held(4, 2*s)}, {d: 10 * s, of: vacant(3)}}, want: 10*s + tT + tD},
		"and its number again":            {learns: []learned{{d: 0, of: held(5, 0), pushed: true}, {d: s, of: held(5, s, by("other"), until(3*s))}}, want: s + tT + tD},
		"it is emptied":                   {learns: []learned{{d: s, of: vacant(0, emptied)}}, want: s + tT + tD},
		"it is emptied again":             {learns: []learned{{d: s, of: vacant(0, by("x"), emptied)}, {d: 9 * s, of: vacant(0, by("y"), emptied)}}, want: 9*s + tT + tD},
		"and on from there":               {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3)}, {d: 10 * s, of: vacant(6)}}, want: 10*s + tT + tD},
		"and the same leader on":          {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3)}, {d: 8 * s, of: held(5, 7*s, extended(1))}}, want: 7*s + tT + tS},
		"a sight before the newest":       {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3)}, {d: 8 * s, of: held(5, 7*s, extended(1))}, {d: 9 * s, of: vacant(6)}}, want: 9 * s},
		"or before a read of the newest":  {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3)}, {d: 2 * s, of: held(5, 0)}, {d: 3 * s, of: vacant(6)}}, want: 3 * s},
		"it is emptied under a leader":    {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(0, emptied)}}, want: s + tT + tD},
		"it does not end a hold":          {learns: []learned{{d: 0, of: held(5, 0, hold(time.Minute))}, {d: 2 * s, of: vacant(3)}}, want: tT + time.Minute + tS + tT + tD},
		"nor the dead":                    {set: isDead("i4"), learns: []learned{{d: 0, of: held(5, 0)}, {d: 2 * s, of: held(4, 0)}}, want: tT + tS + tT + tD},
		"a long reservation":              {learns: []learned{{d: 0, of: vacant(5, reserved("c", 5*time.Hour))}, {d: 2 * s, of: vacant(3)}}, want: tT + tD + tT + tD},
		"of the longest term":             {learns: []learned{{d: 0, of: long(5)}, {d: 2 * s, of: vacant(3)}}, want: 4*tT + tS + 4*tT + tD},
		"emptied in a long term":          {learns: []learned{{d: 0, of: long(5)}, {d: 2 * s, of: vacant(0, emptied)}}, want: 2*s + 4*tT + tD},
		"or in one that was learned next": {learns: []learned{{d: 0, of: held(4, 0)}, {d: s, of: long(5)}, {d: 2 * s, of: vacant(0, emptied)}}, want: 2*s + 4*tT + tD},
		"or in the one before":            {learns: []learned{{d: 0, of: long(5)}, {d: s, of: held(6, s)}, {d: 2 * s, of: vacant(0, emptied)}}, want: 2*s + 4*tT + tD},
		"and on by the same number":       {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3)}, {d: 10 * s, of: vacant(5, by("y"))}}, want: 10*s + tT + tD},
		"a push of the newest in between": {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3)}, {d: 2 * s, of: held(5, 0), pushed: true}, {d: 10 * s, of: vacant(6)}}, want: 10*s + tT + tD},
		"one stale read":                  {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3)}, {d: 2 * s, of: held(5, 0)}}, want: tT + tS},
		"replicas that take turns":        {store: held(5, 0), learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: held(4, -tT)}, {d: 2 * s, of: held(5, 0)}, {d: 3 * s, of: held(4, -tT)}}, want: tT + tS},
		"two versions, read once":         {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3)}, {d: 2 * s, of: vacant(3, by("y"))}, {d: 3 * s, of: held(5, 0)}}, want: tT + tS},
		"a push is no second read":        {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(3)}, {d: 2 * s, of: vacant(3), pushed: true}, {d: 3 * s, of: held(5, 0)}}, want: tT + tS},
		"no more than eight are told apart": {learns: func() (all []learned) {
			all = []learned{{d: 0, of: held(50, 0)}}
			for n := range ElectionNumber(maxOlder + 2) {
				all = append(all, learned{d: time.Duration(n+1) * s / 2, of: vacant(30 + n)})
			}
			return append(all, learned{d: 7 * s, of: held(50, 0)})
		}(), want: tT + tS},
	})
}

// The older states are few, however many are read.
func TestClaimsOlderAreFew(t *testing.T) {
	l := newLease(&policy{id: "a", term: tT, skew: tS})
	l.learn(held(500, 0), wasRead, at(0), at(0))
	for n := range ElectionNumber(100) {
		l.learn(vacant(30+n), wasRead, at(1), at(1))
	}
	if len(l.older) != maxOlder {
		t.Errorf("%d older states are kept, want %d", len(l.older), maxOlder)
	}
}

// A feed that tells of something else than what is known by a feed only is a reason to read, until a read settles it.
func TestClaimsDisputed(t *testing.T) {
	l := newLease(&policy{id: "a", term: tT, skew: tS})
	for i, step := range []struct {
		of       *RaceEntry
		how      source
		disputed bool
	}{
		{held(4, 0), wasRead, false},
		{held(3, 0), wasPushed, false}, // what is known was read
		{held(5, 0), wasPushed, false},
		{held(5, 0, by("other")), wasPushed, true},
		{held(5, 0), wasPushed, true},
		{held(5, 0), wasRead, false},
		{held(5, 0, by("other")), wasPushed, false},
	} {
		if l.learn(step.of, step.how, at(0), at(0)); l.disputed != step.disputed {
			t.Errorf("step %d: disputed %t, want %t", i, l.disputed, step.disputed)
		}
	}
}

// The dead that hold nothing that is known are forgotten.
func TestClaimsBury(t *testing.T) {
	l := newLease(&policy{id: "a", term: tT, skew: tS})
	l.learn(held(3, 0), wasRead, at(0), at(0))
	for _, id := range []string{"i2", "i3"} {
		l.dead[id] = true
	}
	if got := strings.Join(l.bury(), " "); got != "i2" || !l.dead["i3"] {
		t.Errorf("buried %q", got)
	}
	l.learn(held(2, 0), wasRead, at(1), at(1))
	for _, id := range []string{"i1", "i2", "i3"} {
		l.dead[id] = true
	}
	if got := strings.Join(l.bury(), " "); got != "i1" || !l.dead["i2"] || !l.dead["i3"] {
		t.Errorf("buried %q", got)
	}
	delete(l.dead, "i2")
	l.learn(vacant(3, by("i3"), extended(10)), wasRead, at(1), at(1))
	if got := strings.Join(l.bury(), " "); got != "i3" {
		t.Errorf("buried %q", got)
	}
}
