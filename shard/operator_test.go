//go:build go1.25

package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
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
		version := g.Of(assignmentName).Entry().ElectionNumber
		if time.Sleep(time.Minute); g.Of(assignmentName).Entry().ElectionNumber != version {
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
		e := must(a.entry(MaxAssignment))(t)
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
		version := g.Of(assignmentName).Entry().ElectionNumber
		g.Of(assignmentName).Replace(nil)
		after := leaderelection.ElectionNumber(time.Now().Unix() + 1000)
		if err := g.operator().Reset(context.Background(), after, false); err != nil {
			g.t.Fatal(err)
		}
		if e := g.Of(assignmentName).Entry(); e.ElectionNumber <= version {
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

// Of what a reset finds. While a member may own something nothing is reset, and nothing that cannot be
// judged, unless it is forced. An election's record is never. What can be read stays, but for who owns
// what: a restored record's tokens may be too small.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 946_684_800 + 5000 // the bubble's time, and more
		var broken error                 // of reads of the record
		leads := func(id string, term time.Duration) func(*memory.Decider) {
			return func(d *memory.Decider) {
				e := held(9, 0, term)
				e.LeaderID = id + "#1"
				d.Replace(e)
			}
		}
		says := func(params string, led string) func(*memory.Decider) {
			return func(d *memory.Decider) {
				d.Replace(&leaderelection.RaceEntry{ElectionNumber: 99, Incarnation: "x", LeaderID: led, ConnectionParams: []byte(params)})
			}
		}
		damage := func(*memory.Decider) { broken = errors.New("it is not JSON") }
		for name, c := range map[string]struct {
			after  leaderelection.ElectionNumber
			record string
			is     func(*memory.Decider)
			says   string // in the error, unless it is forced; "": it is reset
			forced string // and if it is
		}{
			"as it was":                     {after: after},
			"no number":                     {after: 0, says: "must be the greatest token", forced: "must be the greatest token"},
			"too great a number":            {after: leaderelection.MaxElectionNumber, says: "must be the greatest token", forced: "must be the greatest token"},
			"a member":                      {after, seatName(0), leads("b", T), `seat-0 is held by "b"`, ""},
			"a member on a seat not named":  {after, seatName(1), leads("b", -T+time.Second), `seat-1 is held by "b"`, ""},
			"a member that is long gone":    {after, seatName(1), leads("b", -T), "", ""},
			"no common clock":               {after, seatName(1), func(d *memory.Decider) { e := held(9, 0, -time.Hour); e.Unsynchronized = true; d.Replace(e) }, `seat-1 is held by "b"`, ""},
			"a coordinator, seats are gone": {after, coordinatorName, leads("a", T), `coordinator is held by "a"`, ""},
			"a newer form":                  {after, assignmentName, says(`{"form":"shards/2"}`, ""), "shards/2", ""},
			"an election's record":          {after, assignmentName, says(`{"form":"shards/2"}`, "somebody"), "somebody", "somebody"},
			"deleted":                       {after, assignmentName, func(d *memory.Decider) { d.Replace(nil) }, "", ""},
			"a damaged assignment":          {after, assignmentName, damage, "force it: it is not JSON", ""},
			"a damaged coordinator":         {after, coordinatorName, damage, "force it: it is not JSON", ""},
			"a damaged seat":                {after, seatName(1), damage, "force it: it is not JSON", ""},
		} {
			for _, force := range []bool{false, true} {
				var g memgroup.Records
				a := of(7, Numbered(3), placed{0, 5, true}, placed{0, after + 1000, false}, placed{none, 6, false})
				a.id, a.pins, a.drained, a.retired = "id", map[string]string{"1": "c"}, []string{"d"}, after+500
				d := g.Of(assignmentName)
				if err := writeNext(t.Context(), d, a); err != nil {
					t.Fatal(err)
				}
				g.Of(seatName(0)).Replace(&leaderelection.RaceEntry{ElectionNumber: 3, Extension: 1})
				g.Of(seatName(1)).Replace(&leaderelection.RaceEntry{ElectionNumber: 3, Extension: 1})
				if broken = nil; c.is != nil {
					c.is(g.Of(c.record))
				}
				before := d.Entry()
				err := Operator{Store: func(name string) (leaderelection.RaceDecider, error) {
					h := g.Of(name).Handle()
					if broken != nil && name == c.record {
						h.Inject(memory.Fail(&leaderelection.DamagedRecordError{Token: g.Of(name).Entry().Token, Err: broken}).On(memory.Read))
					}
					return h, nil
				}}.Reset(t.Context(), c.after, force)
				now := d.Entry()
				if want := map[bool]string{false: c.says, true: c.forced}[force]; want != "" {
					if err == nil || !strings.Contains(err.Error(), want) || now.Compare(before) != 0 || now.Incarnation != before.Incarnation {
						t.Errorf("%s, forced %v: %v, want %q; the record is %+v", name, force, err, want, now)
					}
					continue
				}
				next, damaged := readAssignment(now)
				if err := errors.Join(err, damaged); err != nil {
					t.Errorf("%s, forced %v: %v", name, force, err)
					continue
				}
				if next.version <= max(before.ElectionNumber, 946_684_800) || next.id == before.Incarnation || len(next.sessions) != 0 {
					t.Errorf("%s, forced %v: %+v follows %+v", name, force, next, before)
				}
				if c.record == assignmentName { // nothing of it can be read
					if next.retired != after || next.shards.Len() != 0 {
						t.Errorf("%s, forced %v: %+v", name, force, next)
					}
				} else if want := []placed{{none, after, false}, {none, after + 1000, false}, {none, after, false}}; !slices.Equal(next.places, want) || next.retired != after+500 || next.pins["1"] != "c" || next.drained[0] != "d" {
					t.Errorf("%s, forced %v: %+v", name, force, next)
				}
			}
		}
	})
	if err := (Operator{}).Reset(t.Context(), 1, true); err == nil {
		t.Error("without a Store")
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

// An observer is told of newer assignments only, and though the records refuse for good at first. It logs such an
// outage, and its end.
func TestWatchTellsOfNewerOnly(t *testing.T) {
	both(t, func(g *group) {
		var well atomic.Bool
		var said said
		told := make(chan leaderelection.ElectionNumber, 10)
		stop := g.observe(WatchConfig{PollInterval: T, Logger: said.logger(), Store: g.store(func(string, memory.Op) memory.Fault {
			if well.Load() {
				return memory.Fault{}
			}
			return memory.Fault{Err: leaderelection.ErrPermanent}
		})}, func(a *Assignment) { told <- a.Version() })
		time.Sleep(3 * T)
		well.Store(true)
		g.put(5, 5)
		time.Sleep(3 * T)
		said.wants(g.t, "the assignment cannot be followed", "the assignment is followed again")
		g.put(3, 6) // a stale read looks like that
		time.Sleep(3 * T)
		g.put(6, 6)
		time.Sleep(3 * T)
		stop()
		close(told)
		var got []leaderelection.ElectionNumber
		for v := range told {
			got = append(got, v)
		}
		if !slices.Equal(got, []leaderelection.ElectionNumber{5, 6}) {
			g.t.Errorf("told of %v, want 5 and 6", got)
		}
	})
}

// Who looks on sees who coordinates and who has which seat, and by the clocks' skew whether that
// is over.
func TestLookingOn(t *testing.T) {
	play(t, func(g *group) {
		info := must(json.Marshal((&Member{cfg: Config{MemberID: "b", Weight: 2, Capacity: 9, Zone: "z"}}).info()))(t)
		e := held(3, 0, 10*time.Second)
		e.ConnectionParams = info
		g.Of(seatName(0)).Replace(&leaderelection.RaceEntry{ElectionNumber: 7}) // nobody has it
		g.Of(seatName(1)).Replace(e)
		g.Of(coordinatorName).Replace(held(4, 0, 10*time.Second))
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
		g.Of(coordinatorName).Replace(e)
		if id, err := w.Coordinator(g.t.Context()); id != "b" || err != nil {
			t.Errorf("by no common clock: %q, %v", id, err)
		}
	})
}

// A seat that cannot be read hides no other; nobody's can be read only if all fail.
func TestSeatsThatCannotBeRead(t *testing.T) {
	fails := map[string]error{}
	var g memgroup.Records
	for k := range 3 {
		g.Of(seatName(k)).Replace(&leaderelection.RaceEntry{ElectionNumber: 7})
	}
	w := WatchConfig{Store: func(name string) (leaderelection.RaceDecider, error) {
		return g.With(func(memory.Op) memory.Fault { return memory.Fault{Err: fails[name]} })(name)
	}}
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
