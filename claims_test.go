package leaderelection

import (
	"fmt"
	"math"
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
	for i := 0; now < 3*MaxTermLength; {
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
		t.Errorf("it does not lead in years, want %v", h.want)
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
		"a term":                       {learns: []learned{{d: 0, of: held(3, 0)}}, want: tT + tS, reads: 1},
		"a clock behind":               {ahead: -tS, learns: []learned{{d: 0, of: held(3, 0)}}, want: tT + 2*tS},
		"a clock ahead":                {ahead: tS, learns: []learned{{d: 0, of: held(3, 0)}}, want: tT},
		"by one's own id":              {learns: []learned{{d: 0, of: held(3, 0, func(r *RaceEntry) { r.LeaderID = "a" })}}, want: tT + tS},
		"of another length":            {learns: []learned{{d: 0, of: held(3, 0, ofTerm(time.Minute), until(time.Minute))}}, want: time.Minute + tS},
		"an extension":                 {learns: []learned{{d: 0, of: held(3, 0)}, {d: 8 * s, of: held(3, 7*s, extended(1))}}, want: 7*s + tT + tS},
		"a request is no extension":    {learns: []learned{{d: 0, of: held(3, 0)}, {d: 5 * s, of: asked(held(3, 0), "b")}}, want: tT + tS},
		"a vacancy":                    {learns: []learned{{d: s, of: vacant(3)}}, want: s, reads: 0},
		"nobody has led":               {learns: []learned{{d: s, of: &RaceEntry{}}}, want: s},
		"reserved for another":         {learns: []learned{{d: 0, of: vacant(3, reserved("c", tT))}}, want: tT},
		"for this one":                 {learns: []learned{{d: s, of: vacant(3, reserved("a", tT))}}, want: s},
		"for anybody":                  {learns: []learned{{d: s, of: vacant(3, reserved(AnySuccessor, tT))}}, want: s},
		"reserved by a wrong clock":    {learns: []learned{{d: 0, of: vacant(3, reserved("c", 5*far))}}, want: tT + tD},
		"a hold":                       {learns: []learned{{d: 0, of: held(3, 0, hold(time.Minute))}}, want: tT + time.Minute + tS},
		"a hold has no patience":       {learns: []learned{{d: 0, of: held(3, 0, hold(time.Minute), until(far))}}, want: far + time.Minute + tS},
		"a hold of one's own neither":  {set: func(l *lease) { l.hold = time.Hour }, learns: []learned{{d: 0, of: held(3, 0, until(far))}}, want: far + tS},
		"a vacancy on hold":            {learns: []learned{{d: 0, of: vacant(3, hold(time.Minute), until(0))}}, want: time.Minute + tS},
		"on a hold that is just over":  {learns: []learned{{d: 0, of: vacant(3, hold(1), until(0))}}, want: tS + 1},
		"by a wrong clock":             {learns: []learned{{d: 0, of: vacant(3, hold(time.Minute), until(far))}}, want: time.Minute + tD + time.Minute/15},
		"on hold for this one":         {learns: []learned{{d: 0, of: vacant(3, reserved("a", 0), hold(time.Minute))}}, want: time.Minute + tS},
		"a hold that is negative":      {learns: []learned{{d: 0, of: held(3, 0, hold(-time.Hour))}}, want: tT + tS},
		"a hold without an end":        {learns: []learned{{d: 0, of: vacant(3, hold(math.MaxInt64), until(0))}}, want: MaxTermLength + tS},
		"a term without an end":        {learns: []learned{{d: 0, of: held(3, 0, ofTerm(math.MaxInt64), until(far))}}, want: far + tS},
		"the dead":                     {set: isDead("i3"), learns: []learned{{d: s, of: held(3, 0)}}, want: s},
		"their hold":                   {set: isDead("i3"), learns: []learned{{d: 0, of: held(3, 0, hold(time.Minute))}}, want: tT + time.Minute + tS},
		"the dead, for a hold to come": {set: func(l *lease) { isDead("i3")(l); l.hold = time.Hour }, learns: []learned{{d: s, of: held(3, 0, until(far))}}, want: s},
		"the dead of another":          {set: isDead("i2"), learns: []learned{{d: 0, of: held(3, 0)}}, want: tT + tS},
		"patience":                     {learns: []learned{{d: s, of: held(3, 0, until(far))}}, want: s + 2*tT, marked: true},
		"patience of a wide skew":      {set: func(l *lease) { l.skew = 6 * s }, learns: []learned{{d: s, of: held(3, 0, until(far))}}, want: s + tT + 18*s, marked: true},
		"not less than right clocks":   {set: func(l *lease) { l.skew = 6 * s }, learns: []learned{{d: 0, of: held(3, 0, until(tT+12*s))}}, want: tT + 18*s},
		"patience, a sign of life":     {learns: []learned{{d: s, of: held(3, 0, until(far))}, {d: 8 * s, of: held(3, 7*s, until(far+7*s), extended(1))}}, want: 8*s + 2*tT, marked: true},
		"patience, a request is none":  {learns: []learned{{d: s, of: held(3, 0, until(far))}, {d: 8 * s, of: asked(held(3, 0, until(far)), "b")}}, want: s + 2*tT, marked: true},
		"patience for one term":        {learns: []learned{{d: s, of: held(3, 0, until(far))}, {d: 8 * s, of: held(3, 7*s, extended(1))}}, want: 7*s + tT + tS},
		"patience, of a longer term":   {learns: []learned{{d: 0, of: held(3, 0, ofTerm(4*tT), until(4*tT))}, {d: s, of: held(4, s, until(far))}}, want: s + 8*tT, marked: true},
	})
}

// Rule 4: when a claim is over for those who compare none, or if its writer compares none. Who leads by that marks
// its record.
func TestLeaseRule4Measured(t *testing.T) {
	const s, far = time.Second, 2 * time.Hour
	playAll(t, map[string]history{
		"the policy":                 {set: measured, learns: []learned{{d: s, of: held(3, -5*s)}}, want: s + tT + tD, marked: true},
		"a long term":                {set: measured, learns: []learned{{d: s, of: held(3, 0, ofTerm(200*s))}}, want: s + 202*s, marked: true},
		"a request is no extension":  {set: measured, learns: []learned{{d: 0, of: held(3, 0)}, {d: 5 * s, of: asked(held(3, 0), "b")}}, want: tT + tD, marked: true},
		"the record":                 {learns: []learned{{d: s, of: held(3, -tT, unmeasured)}}, want: s + tT + tD},
		"the record, a far end":      {learns: []learned{{d: s, of: held(3, far, unmeasured)}}, want: s + tT + tD},
		"a reservation":              {learns: []learned{{d: s, of: vacant(3, reserved("c", -tT), unmeasured)}}, want: s + tT + tD},
		"a hold":                     {set: measured, learns: []learned{{d: s, of: held(3, 0, hold(tT))}}, want: s + 2*(tT+tD), marked: true},
		"a vacancy on hold":          {set: measured, learns: []learned{{d: s, of: vacant(3, hold(tT))}}, want: s + tT + 2*tD, marked: true},
		"a vacancy":                  {set: measured, learns: []learned{{d: s, of: vacant(3)}}, want: s, marked: true},
		"an older state, later seen": {set: measured, learns: []learned{{d: 0, of: held(5, 0)}, {d: 10 * s, of: held(4, 0)}}, want: 10*s + 2*(tT+tD), marked: true},
		"of no length":               {set: measured, learns: []learned{{d: s, of: held(3, 0, ofTerm(0))}}, want: s + tT + tD, marked: true},
		"stale reads in between":     {set: measured, learns: []learned{{d: 0, of: held(3, 0, extended(1))}, {d: 5 * s, of: held(3, -7*s)}, {d: 6 * s, of: held(3, 0, extended(1))}}, want: tT + tD, marked: true},
		"an older state, seen again": {set: measured, learns: []learned{{d: 0, of: held(3, 0, extended(2))}, {d: s, of: held(3, 0, extended(1))}, {d: 3 * s, of: held(3, s, extended(3))}, {d: 14 * s, of: held(3, 0, extended(1))}}, want: 14*s + 2*(tT+tD), marked: true},
		"a hold of a tiny term":      {set: measured, learns: []learned{{d: 0, of: vacant(3, hold(time.Hour), ofTerm(1))}}, want: 2*time.Hour + tD, marked: true},
		"without an end":             {set: measured, learns: []learned{{d: 0, of: vacant(3, hold(math.MaxInt64), ofTerm(1))}}, want: 2*MaxTermLength + tD, marked: true},
		"mistrust":                   {set: mistrusts, learns: []learned{{d: s, of: held(3, -far)}}, want: s + tT + tD, marked: true},
		"mistrust, a vacancy":        {set: mistrusts, learns: []learned{{d: s, of: vacant(3)}}, want: s + tT + tD, marked: true},
		"mistrust, one's own":        {set: mistrusts, learns: []learned{{d: s, of: vacant(3, reserved("a", tT))}}, want: s + tT + tD, marked: true},
		"mistrust, the dead":         {set: func(l *lease) { mistrusts(l); isDead("i3")(l) }, learns: []learned{{d: s, of: held(3, 0)}}, want: s, marked: true},
		"mistrust, a hold to come":   {set: func(l *lease) { mistrusts(l); l.hold = 1 }, learns: []learned{{d: s, of: vacant(3)}}, want: never},
		"mistrust that ends in time": {set: func(l *lease) { mistrusts(l); l.bounded(0) }, learns: []learned{{d: s, of: vacant(3)}}, want: s},
		"the shortest term":          {set: measured, learns: []learned{{d: s, of: held(3, 0, ofTerm(1))}}, want: s + 1 + tD, marked: true},
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
		"a rumour by a wrong clock":     {learns: []learned{{d: 0, of: held(5, 0, until(time.Hour))}, {d: s, of: held(5, s, until(time.Hour), extended(1)), pushed: true}, {d: 2 * s, of: held(5, 0, until(time.Hour))}}, want: 2*s + 2*tT + tT + tD},
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
		"two states of one order":         {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: held(5, -tT, by("other"))}, {d: 2 * s, of: held(5, 0)}}, want: s + tT + tD},
		"or of one leadership":            {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: held(5, -s)}, {d: 2 * s, of: held(5, 0)}}, want: s + tT + tD},
		"two leaderships of one number":   {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(5, by("other"))}}, want: s + tT + tD},
		"the second is an older state":    {learns: []learned{{d: 0, of: held(5, 0, extended(1))}, {d: s, of: held(5, s, by("other"))}, {d: 2 * s, of: held(5, 0, extended(1))}}, want: s + tT + tD},
		"more of one that was released":   {learns: []learned{{d: 0, of: vacant(5, reserved("c", tT))}, {d: s, of: vacant(5, extended(10))}}, want: s + tT + tD},
		"but no request":                  {learns: []learned{{d: 0, of: vacant(5, reserved("c", tT))}, {d: s, of: vacant(5, extended(10), reserved("a", tT))}}, want: s},
		"or a feed tells of it":           {learns: []learned{{d: 0, of: held(5, 0)}, {d: s, of: vacant(5, by("other")), pushed: true}, {d: 2 * s, of: vacant(5, by("other"))}}, want: s + tT + tD},
		"under a request":                 {learns: []learned{{d: 0, of: held(5, 0)}, {d: 7 * s, of: held(5, 7*s, extended(1)), pushed: true}, {d: 9 * s, of: asked(held(5, 0), "c")}}, want: 9*s + tT + tD},
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

// A record is what it says: a request that is read takes the place of another of the same order, of which a feed has told. It
// is no other term.
func TestClaimsReplaced(t *testing.T) {
	l := newLease(&policy{id: "a", term: tT, skew: tS})
	l.learn(held(5, 0), wasRead, at(0), at(0))
	l.learn(asked(held(5, 0), "undone"), wasPushed, at(1), at(1))
	if news := l.learn(asked(held(5, 0), "landed"), wasRead, at(2), at(2)); !news || l.newest.of.Successor != "landed" || l.newest.seen != at(0).mono || l.quiet != 0 {
		t.Errorf("news %t, %+v, quiet %v", news, l.newest, l.quiet)
	}
	l.learn(asked(held(6, 0), "told"), wasPushed, at(3), at(3))
	l.learn(asked(held(6, 0), "told"), wasRead, at(4), at(4))
	if news := l.learn(asked(held(6, 0), "another"), wasRead, at(5), at(5)); news || l.newest.of.Successor != "told" {
		t.Errorf("what was read since is replaced: news %t, %+v", news, l.newest)
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
	l.learn(vacant(2), wasRead, at(1), at(1)) // by what is known it holds the record still
	if got := l.bury(); len(got) > 0 {
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

// What a stamp of an own write proves of a clock whose bound is tS.
func TestWitnessStamps(t *testing.T) {
	const s, odd = time.Second, 1 // a stamp that does not end in zeros is exact
	for name, c := range map[string]struct {
		stamp, begun, answered time.Duration
		before, offset         time.Duration
		ahead                  bool
	}{
		"right":                          {stamp: odd, begun: 0, answered: 2, before: s, offset: 0},
		"ahead by the bound":             {stamp: odd, begun: tS + odd, answered: tS + odd, before: s, offset: 0},
		"ahead":                          {stamp: odd, begun: tS + odd + 1, answered: tS + odd + 1, offset: tS + 1, ahead: true},
		"behind by the bound":            {stamp: tS + odd, begun: odd, answered: odd, before: s, offset: 0},
		"behind":                         {stamp: tS + odd + 1, begun: 0, answered: odd, offset: -tS - 1},
		"a slow write proves nothing":    {stamp: tS + odd, begun: 0, answered: 9 * s, offset: 0},
		"nor does it end a proof":        {stamp: odd, begun: 0, answered: 9 * s, before: 3 * s, offset: 3 * s},
		"a proof is replaced":            {stamp: odd, begun: -9*s + odd, answered: -9*s + odd, before: 3 * s, offset: -9 * s},
		"ahead, and set right meanwhile": {stamp: odd, begun: 9*s + odd, answered: odd, offset: 9 * s, ahead: true},
		"whole seconds may be two":       {stamp: 0, begun: tS + 2*s - 1, answered: tS + 2*s - 1, offset: 0},
		"and prove what is further":      {stamp: 0, begun: tS + 2*s, answered: tS + 2*s, offset: tS + 1, ahead: true},
		"and behind":                     {stamp: tS + 2*s, begun: 0, answered: 0, offset: -tS - 1},
		"a millisecond may be cut off":   {stamp: time.Millisecond, begun: tS + 2*time.Millisecond - 1, answered: tS + 2*time.Millisecond - 1, offset: 0},
		"no stamp":                       {stamp: never, begun: time.Hour, answered: time.Hour, before: s, offset: s},
		"one that no clock has made":     {stamp: -2 * maxAge / 2 * 2, begun: 0, answered: 0, before: s, offset: s},
		"the furthest that one has":      {stamp: -maxAge, begun: 0, answered: 0, offset: maxAge, ahead: true},
		"one that is sixty years ahead":  {stamp: 60 * MaxTermLength, begun: 0, answered: 0, offset: -60 * MaxTermLength},
	} {
		t.Run(name, func(t *testing.T) {
			w, stamp := witness{offset: c.before}, time.Time{}
			if c.stamp != never {
				stamp = zero.Add(c.stamp)
			}
			ahead := w.observe(stamp, at(c.begun), at(c.answered), tS)
			near := time.Duration(0)
			if c.stamp%time.Second == 0 && c.offset != 0 {
				near = 2 * time.Second // what the stamp may have lost is taken off
			}
			if ahead != c.ahead || (w.offset-c.offset).Abs() > near || w.wrong() != (c.offset != 0) {
				t.Errorf("ahead %t, offset %v; want %t, %v", ahead, w.offset, c.ahead, c.offset)
			}
		})
	}
}

// The clock's own bound counts while it is beyond MaxClockSkew, besides what stamps prove.
func TestWitnessOwnBound(t *testing.T) {
	w := witness{}
	for _, c := range []struct {
		bound time.Duration
		wrong bool
	}{{tS, false}, {tS + 1, true}, {0, false}} {
		if w.own(c.bound, tS); w.wrong() != c.wrong || c.wrong && w.bound != c.bound {
			t.Errorf("a bound of %v: %+v", c.bound, w)
		}
	}
	w.offset = time.Minute
	if w.own(0, tS); !w.wrong() {
		t.Error("a clock that cannot tell ends what a stamp has proved")
	}
}

// resolution is what a stamp may have lost.
func TestWitnessResolution(t *testing.T) {
	for ns, want := range map[int]time.Duration{
		0: 2*time.Second - 1, 500_000_000: 100*time.Millisecond - 1, 120_000_000: 10*time.Millisecond - 1,
		123_456_000: time.Microsecond - 1, 123_456_789: 0, 100: 99,
	} {
		if got := resolution(time.Unix(5, int64(ns))); got != want {
			t.Errorf("of %d ns: %v, want %v", ns, got, want)
		}
	}
}

// Clocks disagree if a term ends later than a clock that is ahead by MaxClockSkew writes, and one that is behind by as
// much reads.
func TestClocksDisagreeBeyondTheBounds(t *testing.T) {
	for name, c := range map[string]struct {
		of  *RaceEntry
		far bool
	}{
		"within":        {held(3, 2*tS), false},
		"beyond":        {held(3, 2*tS+1), true},
		"a vacancy":     {vacant(3, reserved("c", time.Hour)), false},
		"marked":        {held(3, time.Hour, unmeasured), false},
		"of no length":  {held(3, time.Hour, ofTerm(0)), false},
		"of any length": {held(3, time.Hour, ofTerm(MaxTermLength+1)), false},
	} {
		if err := tooFar(c.of, zero, tS); (err != nil) != c.far {
			t.Errorf("%s: %v", name, err)
		}
	}
}
