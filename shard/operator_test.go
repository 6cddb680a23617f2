//go:build go1.25

package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Operators pin, and empty a member, from anywhere.
func TestOperators(t *testing.T) {
	both(t, func(g *group) {
		g.join("a")
		g.join("b")
		g.with("c")
		op, ctx := g.operator(), context.Background()
		for _, err := range []error{op.Drain(ctx, "b"), op.Drain(ctx, "b"), op.Pin(ctx, "3", "b"), op.Pin(ctx, "3", "b")} {
			if err != nil {
				g.t.Fatal(err)
			}
		}
		time.Sleep(4 * T)
		if n := g.counts(); n["b"] != 1 || n["a"]+n["c"] != 11 {
			g.t.Errorf("b is drained, and shard 3 pinned to it: %v", n)
		}
		version := g.record(assignmentName).Entry().ElectionNumber
		if time.Sleep(time.Minute); g.record(assignmentName).Entry().ElectionNumber != version {
			g.t.Error("the assignment is written again and again")
		}
		if err := errors.Join(op.Undrain(ctx, "b"), op.Unpin(ctx, "3")); err != nil {
			g.t.Fatal(err)
		}
		g.settles(12, 8*T)
	})
	err := Operator{Store: func(string) (leaderelection.RaceDecider, error) { return memory.NewDecider(), nil }}.Drain(t.Context(), "a")
	if !errors.Is(err, ErrNoGroup) {
		t.Errorf("no group: %v", err)
	}
}

// Operators' changes are each a version with an id of its own, and only if they change
// something; what is refused says so, a lost race is run again, other errors are told.
func TestOperatorWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := of(7, Numbered(2), placed{0, 1, false}, placed{0, 1, false})
		a.id = "id"
		e, err := a.entry(MaxAssignment)
		if err != nil {
			t.Fatal(err)
		}
		d.Replace(e)
		h := d.Handle()
		op, ctx := Operator{Store: func(string) (leaderelection.RaceDecider, error) { return h, nil }}, t.Context()
		pin := func(shard, member string) func() error { return func() error { return op.Pin(ctx, shard, member) } }
		with := func(f func(context.Context, string) error, name string) func() error {
			return func() error { return f(ctx, name) }
		}
		version := leaderelection.ElectionNumber(7)
		for i, c := range []struct {
			do     func() error
			writes bool
		}{
			{with(op.Drain, "b"), true}, {with(op.Drain, "b"), false}, {with(op.Undrain, "x"), false}, {with(op.Undrain, "b"), true}, {with(op.Undrain, "b"), false},
			{pin("1", "b"), true}, {pin("1", "b"), false}, {pin("1", "c"), true}, {with(op.Unpin, "1"), true}, {with(op.Unpin, "1"), false},
			{pin("1/2", "b"), true}, {pin("1", "b"), false}, {with(op.Unpin, "1/2"), true}, // by its KeyName
		} {
			before := d.Entry()
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			if c.writes {
				version++
			}
			if now := d.Entry(); now.ElectionNumber != version || (now.Incarnation != before.Incarnation) != c.writes {
				t.Errorf("%d: version %d %q follows %d %q", i, now.ElectionNumber, now.Incarnation, before.ElectionNumber, before.Incarnation)
			}
		}
		for says, err := range map[string]error{
			`no shard "2"`: op.Pin(ctx, "2", "b"), `no shard "3"`: op.Unpin(ctx, "3"), `no shard "1/3"`: op.Pin(ctx, "1/3", "b"),
			"the member is empty": op.Pin(ctx, "1", ""), "drain: the member": op.Drain(ctx, ""), "Store is nil": Operator{}.Drain(ctx, "b"),
		} {
			if err == nil || !strings.Contains(err.Error(), says) || errors.Is(err, ErrNoShard) != strings.HasPrefix(says, "no shard") {
				t.Errorf("%v, want %q", err, says)
			}
		}
		h.Inject(memory.Fail(leaderelection.ErrLostRace).On(memory.Write).Times(3))
		if err := op.Drain(ctx, "b"); err != nil {
			t.Errorf("after lost races: %v", err)
		}
		h.Inject(memory.Fail(memory.ErrLost).On(memory.Write))
		if err := op.Undrain(ctx, "b"); !errors.Is(err, memory.ErrLost) {
			t.Errorf("a write that failed: %v", err)
		}
		h.Inject(memory.Fail(leaderelection.ErrLostRace).On(memory.Write))
		late := errors.New("too late")
		short, cancel := context.WithTimeoutCause(ctx, time.Minute+time.Millisecond, late)
		defer cancel()
		if err := op.Undrain(short, "b"); !errors.Is(err, late) {
			t.Errorf("lost for good: %v", err)
		}
	})
}

// After a reset tokens go on from the number that the operator named, also where the record
// was deleted, and whoever watches hears of it.
func TestResetOfADeletedAssignment(t *testing.T) {
	both(t, func(g *group) {
		var last *Assignment
		stop := g.observe(WatchConfig{Store: g.store(nil)}, func(a *Assignment) { last = a })
		for _, id := range []string{"a", "b"} {
			g.with(id)
		}
		g.stopAll()
		version := g.record(assignmentName).Entry().ElectionNumber
		g.record(assignmentName).Replace(nil)
		after := leaderelection.ElectionNumber(time.Now().Unix() + 1000)
		if err := g.operator().Reset(context.Background(), after, false); err != nil {
			g.t.Fatal(err)
		}
		if e := g.record(assignmentName).Entry(); e.ElectionNumber <= version {
			g.t.Errorf("version %d after %d: observers do not heed it", e.ElectionNumber, version)
		}
		g.with("c")
		time.Sleep(time.Minute)
		stop()
		for i := range 12 {
			if name, o := last.Shard(i); o.Token != after+1 || o.Member != "c" {
				g.t.Errorf("shard %s: an observer knows %+v", name, o)
			}
		}
	})
}

// What can be read stays, but for who owns what: a restored record's tokens may be too small.
func TestResetKeepsWhatCanBeRead(t *testing.T) {
	both(t, func(g *group) {
		ctx, op := context.Background(), g.operator()
		g.with("a")
		if err := errors.Join(op.Pin(ctx, "7", "c"), op.Drain(ctx, "d")); err != nil {
			g.t.Fatal(err)
		}
		g.stopAll()
		before := g.record(assignmentName).Entry()
		known, err := readAssignment(before)
		if err != nil {
			g.t.Fatal(err)
		}
		known = known.clone()
		now := uint64(time.Now().Unix())
		known.places[3].token, known.retired, known.version, known.id = now+2000, now+1500, known.version+1, "restored"
		if err := writeNext(ctx, g.record(assignmentName), known); err != nil {
			g.t.Fatal(err)
		}
		if err := op.Reset(ctx, leaderelection.ElectionNumber(now+1000), false); err != nil {
			g.t.Fatal(err)
		}
		a, err := readAssignment(g.record(assignmentName).Entry())
		if err != nil {
			g.t.Fatal(err)
		}
		if a.version <= known.version || a.id == known.id || len(a.sessions) != 0 || a.retired != now+1500 || a.pins["7"] != "c" || a.drained[0] != "d" || a.shards.Len() != 12 {
			g.t.Errorf("%+v", a)
		}
		for i, p := range a.places {
			want := placed{none, now + 1000, false}
			if i == 3 {
				want.token = now + 2000
			}
			if p != want {
				g.t.Errorf("shard %d: %+v", i, p)
			}
		}
	})
}

// While a member may own something nothing is reset, and nothing that cannot be judged,
// unless it is forced. An election's record is never.
func TestResetRefuses(t *testing.T) {
	play(t, func(g *group) {
		ctx, op := context.Background(), g.operator()
		refused := func(after leaderelection.ElectionNumber, force bool, words string) {
			g.t.Helper()
			before := g.record(assignmentName).Entry()
			if err := op.Reset(ctx, after, force); err == nil || !strings.Contains(err.Error(), words) {
				g.t.Errorf("after %d, force %v: %v, want %q", after, force, err, words)
			}
			if e := g.record(assignmentName).Entry(); e.Compare(before) != 0 || e.Incarnation != before.Incarnation {
				g.t.Errorf("it is written: %+v", e)
			}
		}
		refused(0, true, "must be the greatest token")
		refused(leaderelection.MaxElectionNumber, true, "must be the greatest token")
		a, b := g.join("a"), g.with("b")
		refused(100, false, "is held by")
		b.leave() // who coordinates and has seat 0, or has the other seat
		refused(100, false, `held by "a"`)
		seats := map[string]*leaderelection.RaceEntry{}
		for _, name := range []string{seatName(0), seatName(1)} { // deleted, with a member that runs
			seats[name] = g.record(name).Entry()
			g.record(name).Replace(nil)
		}
		refused(100, false, `coordinator is held by "a"`)
		for name, e := range seats {
			g.record(name).Replace(e)
		}
		a.leave()
		for name, change := range map[string]func(e *leaderelection.RaceEntry){
			`seat-1 is held by "x"`: func(e *leaderelection.RaceEntry) { e.TermExpiry = time.Now().Add(-T + time.Second) },
			`seat-1 is held by "y"`: func(e *leaderelection.RaceEntry) { e.TermExpiry, e.Unsynchronized = time.Now().Add(-time.Hour), true },
		} {
			vacant := g.record(seatName(1)).Entry()
			held := vacant.Clone()
			held.LeaderID, held.TermLength, held.Extension = name[len(name)-2:len(name)-1]+"#1", T, held.Extension+1
			change(held)
			g.record(seatName(1)).Replace(held)
			refused(100, false, name)
			g.record(seatName(1)).Replace(vacant)
		}
		e := g.record(assignmentName).Entry()
		foreign := e.Clone()
		foreign.ConnectionParams = []byte(`{"form":"shards/2"}`)
		g.record(assignmentName).Replace(foreign)
		refused(100, false, "shards/2")
		led := foreign.Clone()
		led.LeaderID = "somebody"
		g.record(assignmentName).Replace(led)
		refused(100, true, "somebody")
		g.record(assignmentName).Replace(foreign)
		if err := op.Reset(ctx, 100, true); err != nil {
			g.t.Error(err)
		}
		if a, err := readAssignment(g.record(assignmentName).Entry()); err != nil || a.retired != uint64(time.Now().Unix()) || a.version <= foreign.ElectionNumber {
			g.t.Errorf("%+v, %v", a, err)
		}
		if err := op.Reset(ctx, 200, false); err != nil {
			g.t.Error(err)
		}
	})
	if err := (Operator{}).Reset(t.Context(), 1, true); err == nil {
		t.Error("without a Store")
	}
}

// Damaged records are replaced only when that is forced; then damaged seats are no matter.
func TestResetOfADamagedAssignment(t *testing.T) {
	for _, damaged := range []string{assignmentName, coordinatorName, seatName(0), seatName(1)} {
		play(t, func(g *group) {
			g.join("a")
			g.with("b")
			g.stopAll()
			damage := &leaderelection.DamagedRecordError{Token: g.record(damaged).Entry().Token, Err: errors.New("it is not JSON")}
			op := Operator{Store: g.store(func(name string, op memory.Op) memory.Fault {
				if name == damaged && op.Kind == memory.Read {
					return memory.Fault{Err: damage}
				}
				return memory.Fault{}
			})}
			version := g.record(assignmentName).Entry().ElectionNumber
			ctx := context.Background()
			after := leaderelection.ElectionNumber(time.Now().Unix() + 50)
			err := op.Reset(ctx, after, false)
			if err == nil || !strings.Contains(err.Error(), "it is not JSON") || !strings.Contains(err.Error(), "force") {
				t.Errorf("%s is damaged: %v", damaged, err)
			}
			if err := op.Reset(ctx, after, true); err != nil {
				t.Fatal(err)
			}
			if e := g.record(assignmentName).Entry(); e.ElectionNumber <= version {
				t.Errorf("%s was damaged: version %d after %d", damaged, e.ElectionNumber, version)
			}
			if o := g.with("c").member.Owned(); len(o) != 12 || o[0].ElectionNumber() != after+1 {
				t.Errorf("%s was damaged: %d shards, %+v", damaged, len(o), o)
			}
		})
	}
}

// Observers hear of each version, merged at most.
func TestWatch(t *testing.T) {
	both(t, func(g *group) {
		var last *Assignment
		stop := g.observe(WatchConfig{Store: g.store(nil)}, func(a *Assignment) {
			if last != nil && a.Version() <= last.Version() {
				g.t.Errorf("version %d after %d", a.Version(), last.Version())
			}
			last = a
		})
		time.Sleep(time.Minute)
		a := g.with("a")
		time.Sleep(time.Minute)
		stop()
		o, ok := last.Owner("7")
		if !ok || o.Member != "a" || o.Session != a.member.Session() || o.HostPort[0] != "a:80" || o.Token == 0 || last.Len() != 12 || len(last.Members()) != 1 {
			g.t.Errorf("shard 7: %+v, %v", o, ok)
		}
		if _, ok := last.Owner("12"); ok {
			g.t.Error("there is no shard 12")
		}
	})
}

// A wrong WatchConfig is refused with all its faults.
func TestWatchRefuses(t *testing.T) {
	err := WatchConfig{MaxClockSkew: -1, PollInterval: 5}.Watch(t.Context(), nil)
	if !errors.Is(err, leaderelection.ErrConfig) || !strings.Contains(err.Error(), "PollInterval is 5ns: a bare number") {
		t.Errorf("a duration without a unit: %v", err)
	}
	for _, says := range []string{"Store is nil", "callback given to Watch is nil", "must not be negative"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v lacks %q", err, says)
		}
	}
	for says, w := range map[string]WatchConfig{
		"SharedClock says that there is no skew": {ClockPolicy: leaderelection.SharedClock, MaxClockSkew: time.Second},
		"ClockPolicy is 9":                       {ClockPolicy: 9},
		"a bare number":                          {MaxClockSkew: 5},
	} {
		w.Store = func(string) (leaderelection.RaceDecider, error) { return memory.NewDecider(), nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := w.Watch(ctx, func(context.Context, *Assignment) {}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		cancel()
	}
}

// An observer whose store must be asked reads the coordinator's record, which is small, and
// the assignment when there is another; and a read that fails is tried again.
func TestWatchReadsLittle(t *testing.T) {
	both(t, func(g *group) {
		g.with("a")
		time.Sleep(time.Minute)
		var reads, told atomic.Int32
		stop := g.observe(WatchConfig{Store: g.store(func(name string, op memory.Op) memory.Fault {
			if name == assignmentName && op.Kind == memory.Read && reads.Add(1) == 1 {
				return memory.Fault{Err: memory.ErrLost}
			}
			return memory.Fault{}
		})}, func(*Assignment) { told.Add(1) })
		time.Sleep(10 * T)
		stop()
		if most := map[bool]int32{true: 4, false: 30}[g.polled]; told.Load() != 1 || reads.Load() > most { // Watch itself reads a vacant record
			g.t.Errorf("told of %d assignments, by %d reads", told.Load(), reads.Load())
		}
	})
}

// An observer is told of newer assignments only, and of the newest though reading it fails at
// first, or the record refuses for good at first.
func TestWatchTellsOfNewerOnly(t *testing.T) {
	both(t, func(g *group) {
		var mu sync.Mutex
		var fault error
		var told []leaderelection.ElectionNumber
		fails := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			fault = err
		}
		expect := func(after time.Duration, want ...leaderelection.ElectionNumber) {
			g.t.Helper()
			time.Sleep(after)
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				g.t.Errorf("told of %v, want %v", told, want)
			}
		}
		fails(leaderelection.ErrPermanent)
		stop := g.observe(WatchConfig{PollInterval: T, Store: g.store(func(name string, op memory.Op) memory.Fault {
			mu.Lock()
			defer mu.Unlock()
			if fault == memory.ErrLost && (name != assignmentName || op.Kind != memory.Read) {
				return memory.Fault{}
			}
			return memory.Fault{Err: fault}
		})}, func(a *Assignment) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, a.Version())
		})
		expect(4 * T)
		fails(nil)
		g.put(5, 5)
		expect(3*T, 5)
		g.put(3, 6) // a stale read looks like that
		expect(3*T, 5)
		fails(memory.ErrLost) // of reads of the assignment
		g.put(6, 7)
		expect(3*T/2+time.Second/2, 5)
		fails(nil)
		expect(T/4+time.Second, 5, 6) // tried again each quarter of PollInterval
		g.put(7, 8)
		expect(T+time.Second, 5, 6, 7)
		stop()
	})
}

// Who looks on sees who coordinates and who has which seat, and by the clocks' skew whether that
// is over.
func TestLookingOn(t *testing.T) {
	play(t, func(g *group) {
		info, err := json.Marshal((&Member{cfg: Config{MemberID: "b", Weight: 2, Capacity: 9, Zone: "z"}}).info())
		if err != nil {
			t.Fatal(err)
		}
		e := held(3, 0, 10*time.Second)
		e.ConnectionParams = info
		g.record(seatName(0)).Replace(&leaderelection.RaceEntry{ElectionNumber: 7}) // nobody has it
		g.record(seatName(1)).Replace(e)
		g.record(coordinatorName).Replace(held(4, 0, 10*time.Second))
		w := WatchConfig{Store: g.store(nil)}
		shared := w
		shared.ClockPolicy = leaderelection.SharedClock
		for _, c := range []struct {
			after       time.Duration
			w           WatchConfig
			coordinator string
			over        bool
		}{
			{10 * time.Second, w, "b", false},
			{0, shared, "b", false},
			{S, w, "b", false},
			{0, shared, "", true},
			{1, w, "", true},
		} {
			time.Sleep(c.after)
			id, err := c.w.Coordinator(g.t.Context())
			seats, err2 := c.w.Seats(g.t.Context(), nil)
			if err := errors.Join(err, err2); err != nil || id != c.coordinator {
				t.Errorf("%v later: coordinator %q, want %q: %v", c.after, id, c.coordinator, err)
			}
			want := []Seat{{Session: SessionID{0, 7}}, {Session: SessionID{1, 3}, Member: "b", Weight: 2, Capacity: 9, Zone: "z", Until: e.TermExpiry, Over: c.over}}
			if fmt.Sprintf("%+v", seats) != fmt.Sprintf("%+v", want) {
				t.Errorf("%v later: %+v, want %+v", c.after, seats, want)
			}
		}
		e = held(5, 0, -time.Hour)
		e.Unsynchronized = true
		g.record(coordinatorName).Replace(e)
		if id, err := w.Coordinator(g.t.Context()); id != "b" || err != nil {
			t.Errorf("by no common clock: %q, %v", id, err)
		}
	})
}

// A seat that cannot be read hides no other; nobody's can be read only if all fail.
func TestSeatsThatCannotBeRead(t *testing.T) {
	fails := map[string]error{}
	records := map[string]*memory.Decider{}
	for k := range 4 {
		name := seatName(k)
		records[name] = memory.NewDecider()
		records[name].Inject(func(memory.Op) memory.Fault { return memory.Fault{Err: fails[name]} })
		if k < 3 {
			records[name].Replace(&leaderelection.RaceEntry{ElectionNumber: 7})
		}
	}
	w := WatchConfig{Store: func(name string) (leaderelection.RaceDecider, error) { return records[name], nil }}
	a := gives(1, 1, placed{0, 1, false}).public() // it names seat 0 alone
	damage := &leaderelection.DamagedRecordError{Err: errors.New("not JSON")}
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		fails map[int]error
		want  string // of each seat: read, or not
	}{
		"none":                {nil, "rrr"},
		"a damaged one":       {map[int]error{0: damage}, "-rr"},
		"two":                 {map[int]error{0: damage, 1: damage}, "--r"},
		"the one beyond":      {map[int]error{3: damage}, "rrr-"},
		"one by chance":       {map[int]error{0: lost}, "-rr"},
		"an unnamed one":      {map[int]error{1: lost}, "r-"}, // the store fails: the next may, too
		"all that are looked": {map[int]error{0: lost, 1: lost}, ""},
	} {
		clear(fails)
		for k, err := range c.fails {
			fails[seatName(k)] = err
		}
		seats, err := w.Seats(t.Context(), a)
		got := ""
		for k, s := range seats {
			switch {
			case s.Session.Seat != k:
				t.Errorf("%s: seat %d says that it is %d", name, k, s.Session.Seat)
			case s.Err == nil && s.Session.Number == 7:
				got += "r"
			case errors.Is(s.Err, c.fails[k]) && strings.Contains(s.Err.Error(), seatName(k)):
				got += "-"
			}
		}
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q and %v, want %q", name, got, err, c.want)
		}
	}
}
