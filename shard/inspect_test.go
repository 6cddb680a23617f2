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
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Who looks on sees who coordinates and who has which seat, and by the clocks' skew whether that
// is over.
func TestLookingOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := map[string]*memory.Decider{}
		for _, name := range []string{assignmentName, coordinatorName, seatName(0), seatName(1), seatName(2)} {
			records[name] = memory.NewDecider()
		}
		info, err := json.Marshal((&Member{cfg: Config{MemberID: "b", Weight: 2, Capacity: 9, Zone: "z"}}).info())
		if err != nil {
			t.Fatal(err)
		}
		e := held(3, 0, 10*time.Second)
		e.ConnectionParams = info
		records[seatName(1)].Replace(e)
		records[seatName(0)].Replace(&leaderelection.RaceEntry{ElectionNumber: 7})
		records[coordinatorName].Replace(held(4, 0, 10*time.Second))
		w := WatchConfig{Store: func(name string) (leaderelection.RaceDecider, error) { return records[name], nil }}
		shared := w
		shared.ClockPolicy = leaderelection.SharedClock
		look := func(w WatchConfig) (coordinator string, over bool) {
			t.Helper()
			id, err := w.Coordinator(t.Context())
			seats, err2 := w.Seats(t.Context(), nil)
			if err := errors.Join(err, err2); err != nil || len(seats) != 2 {
				t.Fatalf("%+v, %v", seats, err)
			}
			want := Seat{Session: SessionID{1, 3}, Member: "b", Weight: 2, Capacity: 9, Zone: "z", Until: e.TermExpiry, Over: seats[1].Over}
			if got := seats[1]; got.Session != want.Session || got.Member != want.Member || got.Weight != 2 || got.Capacity != 9 || got.Zone != "z" || !got.Until.Equal(want.Until) {
				t.Errorf("%+v, want %+v", got, want)
			}
			if seats[0].Member != "" || seats[0].Session != (SessionID{0, 7}) {
				t.Errorf("nobody has seat 0: %+v", seats[0])
			}
			return id, seats[1].Over
		}
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
			if id, over := look(c.w); id != c.coordinator || over != c.over {
				t.Errorf("%v later: coordinator %q, seat over: %v; want %q, %v", c.after, id, over, c.coordinator, c.over)
			}
		}
		e = held(5, 0, -time.Hour)
		e.Unsynchronized = true
		records[coordinatorName].Replace(e)
		if id, err := w.Coordinator(t.Context()); id != "b" || err != nil {
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

// What is no name of a numbered shard is none, though it is the same number.
func TestNamesOfNumbers(t *testing.T) {
	s := Numbered(12)
	for _, name := range []string{"01", "+1", "-0", "12", "-1", "", "1 ", "١"} {
		if i := s.index(name); i != none {
			t.Errorf("%q is shard %d", name, i)
		}
	}
	if s.index("11") != 11 || s.index("0") != 0 {
		t.Error("0 and 11 are none")
	}
}

// A record that is not this group's, or no assignment that can be, is refused, and says why.
func TestForeignAssignments(t *testing.T) {
	good := `{"form":"shards/1","numbered":1,"sessions":[{"seat":0,"number":1,"member":"a"}],"places":[[0,1]]}`
	entry := func(text string) *leaderelection.RaceEntry {
		return &leaderelection.RaceEntry{ElectionNumber: 3, Incarnation: "id", ConnectionParams: []byte(text)}
	}
	if a, err := readAssignment(entry(good)); err != nil || a.version != 3 || a.places[0] != (placed{0, 1, false}) {
		t.Fatalf("%+v, %v", a, err)
	}
	led := entry(good)
	led.LeaderID = "x"
	edit := func(old, new string) *leaderelection.RaceEntry { return entry(strings.Replace(good, old, new, 1)) }
	for says, e := range map[string]*leaderelection.RaceEntry{
		`which "x" leads`:        led,
		`its form is "shards/2"`: edit("shards/1", "shards/2"),
		`unknown field "more"`:   edit(`"places"`, `"more":1,"places"`),
		"of session 1 of 1":      edit("[0,1]", "[1,1]"),
		"of session -2 of 1":     edit("[0,1]", "[-2,1]"),
		"places 1 shards of 2":   edit(`"numbered":1`, `"numbered":2`),
		"impossible place":       edit("[0,1]", "[0,0]"),
		"is not a place":         edit("[0,1]", "[0,1,2]"),
		"is there twice":         edit(`"sessions":[`, `"sessions":[{"seat":0,"number":1,"member":"b"},`),
		"cannot be understood":   entry("\x1f\x8bnothing"),
	} {
		if _, err := readAssignment(e); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// A change is made to a copy: who holds the assignment before sees nothing of it.
func TestClonesShareNothing(t *testing.T) {
	a := of(1, Numbered(1), placed{0, 1, false})
	a.pins, a.drained = map[string]string{"0": "a"}, []string{"x"}
	b := a.clone()
	b.sessions[0].Member, b.places[0].token, b.drained[0], b.pins["0"] = "b", 2, "y", "b"
	if a.sessions[0].Member != "a" || a.places[0].token != 1 || a.drained[0] != "x" || a.pins["0"] != "a" {
		t.Errorf("%+v", a)
	}
}

// An observer is told of newer assignments only, and of the newest though reading it fails at
// first, or the record refuses for good at first.
func TestWatchTellsOfNewerOnly(t *testing.T) {
	for _, polled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			records := map[string]*memory.Decider{assignmentName: memory.NewDecider(), coordinatorName: memory.NewDecider()}
			var mu sync.Mutex
			var fault error
			var told []leaderelection.ElectionNumber
			fails := func(err error) {
				mu.Lock()
				defer mu.Unlock()
				fault = err
			}
			w := WatchConfig{PollInterval: T, Store: func(name string) (leaderelection.RaceDecider, error) {
				d := records[name].Handle()
				d.Inject(func(op memory.Op) memory.Fault {
					mu.Lock()
					defer mu.Unlock()
					if fault == memory.ErrLost && (name != assignmentName || op.Kind != memory.Read) {
						return memory.Fault{}
					}
					return memory.Fault{Err: fault}
				})
				if polled {
					return d.Polled(), nil
				}
				return d, nil
			}}
			put := func(version, named leaderelection.ElectionNumber) {
				a := gives(version, 1, placed{0, uint64(version), false})
				a.id = "id"
				e, err := a.entry(MaxAssignment)
				if err != nil {
					t.Fatal(err)
				}
				records[assignmentName].Replace(e)
				records[coordinatorName].Replace(&leaderelection.RaceEntry{
					LeaderID: "a#1", ElectionNumber: 1, Extension: uint64(time.Now().Unix()), TermLength: T, TermExpiry: time.Now().Add(time.Hour),
					ConnectionParams: fmt.Appendf(nil, `{"form":"coordinator/1","version":%d}`, named),
				})
			}
			fails(leaderelection.ErrPermanent)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				_ = w.Watch(ctx, func(_ context.Context, a *Assignment) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, a.Version())
				})
			}()
			expect := func(after time.Duration, want ...leaderelection.ElectionNumber) {
				t.Helper()
				time.Sleep(after)
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(told, want) {
					t.Errorf("polled=%v: told of %v, want %v", polled, told, want)
				}
			}
			expect(4 * T)
			fails(nil)
			put(5, 5)
			expect(3*T, 5)
			put(3, 6) // a stale read looks like that
			expect(3*T, 5)
			fails(memory.ErrLost) // of reads of the assignment
			put(6, 7)
			expect(3*T/2+time.Second/2, 5)
			fails(nil)
			expect(T/4+time.Second, 5, 6) // tried again each quarter of PollInterval
			put(7, 8)
			expect(T+time.Second, 5, 6, 7)
		})
	}
}
