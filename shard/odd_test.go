//go:build go1.25

package shard

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 1: a newer assignment with a smaller token of what is owned is of a store that was set
// back. What was acted on by the greater token is not owned by the smaller one: it is let go, and
// so is each token until one is greater.
func TestRule01SmallerTokenIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		read(gives(10, 3, placed{0, 5, false}))
		o := s.owned[0]
		for token := uint64(4); token <= 5; token++ {
			read(gives(8+leaderelection.ElectionNumber(token), 3, placed{0, token, false}))
			if s.owns() != 0 || o.ValueInFuture() || s.letGo["0"] != token {
				t.Errorf("given by token %d, it owns %d, and says that it has let go of %v", token, s.owns(), s.letGo)
			}
		}
		if read(gives(14, 3, placed{0, 6, false})); s.owns() != 6 {
			t.Errorf("given by token 6, it owns %d", s.owns())
		}
	})
}

// sitsWith is sits for a member with a capacity.
func (d *desk) sitsWith(k, capacity int, extension uint64, letGo map[string]uint64) {
	d.t.Helper()
	id := string(rune('a' + k))
	info := (&Member{cfg: Config{MemberID: id, Weight: 1, Capacity: capacity, Shards: d.cfg.Shards}}).info()
	info.LetGo = letGo
	d.says(k, 1, extension, info)
}

func (d *desk) count(k int) (n int) {
	for i := range d.a.places {
		if d.owner(i) == k {
			n++
		}
	}
	return n
}

// A member is never given more than its Capacity, also while it is asked to let go of something
// for the sake of a pin.
func TestCapacityWhileShardsMove(t *testing.T) {
	d := newDesk(t, 3)
	d.sitsWith(0, 2, 0, nil)
	d.sitsWith(1, 0, 0, nil)
	d.next()
	if d.count(0) != 2 || d.owner(2) != 1 {
		t.Fatalf("places: %+v", d.a.places)
	}
	d.a.pins = map[string]string{"2": "a"}
	d.next()
	d.sitsWith(1, 0, 1, map[string]uint64{"2": 1})
	next, homeless := decideAs(d.a, d.facts, &d.cfg)
	if d.a = next; d.count(0) > 2 || d.owner(2) != none || homeless > 0 {
		t.Fatalf("places: %+v, %d homeless", d.a.places, homeless)
	}
	asked := d.asked()
	d.sitsWith(0, 2, 1, map[string]uint64{asked[0]: 1})
	if d.next(); d.count(0) != 2 || d.owner(2) != 0 || d.count(1) != 1 {
		t.Errorf("places: %+v", d.a.places)
	}
	// The other member goes: what it had finds no room, nor does what waits for a full member.
	d.a.places[2] = placed{none, 9, false}
	d.a.places[0], d.a.places[1] = placed{0, 9, false}, placed{0, 9, false}
	d.vacant(1, 1)
	next, homeless = decideAs(d.a, d.facts, &d.cfg)
	if d.a = next; d.count(0) != 2 || homeless != 1 {
		t.Errorf("places: %+v, %d homeless", d.a.places, homeless)
	}
}

// mute is a decider that returns neither a record nor an error.
type mute struct{ leaderelection.RaceDecider }

func (*mute) ReadCurrent(context.Context) (*leaderelection.RaceEntry, error) { return nil, nil } //nolint:nilnil // that is the fault

// What a Store or its decider must not return is an error, for whoever asks.
func TestReadsOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := func(string) (leaderelection.RaceDecider, error) { return &mute{memory.NewDecider()}, nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := Config{Store: store, MemberID: "a", Shards: Numbered(3), OnOwned: func(context.Context, *Owned) error { return nil }}.Join(ctx)
		_, read := WatchConfig{Store: store}.Read(ctx)
		for what, err := range map[string]error{"Join": err, "Read": read, "Pin": Operator{Store: store}.Pin(ctx, "0", "a"), "Reset": Operator{Store: store}.Reset(ctx, 1, true)} {
			if !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), "returned nil without an error") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// deaf is a decider whose reads neither return nor heed their ctx before release is closed.
type deaf struct {
	leaderelection.RaceDecider
	out     *atomic.Int64
	release chan struct{}
}

func (d *deaf) ReadCurrent(context.Context) (*leaderelection.RaceEntry, error) {
	d.out.Add(1)
	defer d.out.Add(-1)
	<-d.release
	return nil, errors.New("late")
}

// Calls that do not return are not made again and again: they would pile up. When they return, the
// member goes on.
func TestHangingCallsDoNotPileUp(t *testing.T) {
	for _, hangs := range []string{seatName(0), assignmentName} {
		t.Run(hangs, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out atomic.Int64
				release, owned := make(chan struct{}), make(chan string, 1)
				records := map[string]*memory.Decider{}
				for _, name := range []string{coordinatorName, assignmentName, seatName(0), seatName(1)} {
					records[name] = memory.NewDecider()
				}
				store := func(name string) (leaderelection.RaceDecider, error) {
					if name == hangs {
						select {
						case <-release:
						default:
							return &released{&deaf{records[name], &out, release}}, nil
						}
					}
					return records[name].Handle().Polled(), nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				m, err := Config{Store: store, MemberID: "a", Shards: Numbered(1), OnOwned: func(_ context.Context, o *Owned) error { owned <- o.Name(); return nil }}.Start(ctx)
				if err != nil {
					t.Fatal(err)
				}
				watched := make(chan struct{})
				go func() {
					defer close(watched)
					_ = WatchConfig{Store: store}.Watch(ctx, func(context.Context, *Assignment) {})
				}()
				time.Sleep(time.Hour)
				if n := out.Load(); n < 1 || n > 2*maxCalls+5 {
					t.Errorf("%d calls hang", n)
				}
				close(release)
				time.Sleep(time.Minute)
				if len(owned) != 1 {
					t.Error("it owns nothing when the store is well again")
				}
				cancel()
				_ = m.Wait()
				<-watched
			})
		})
	}
}

// released is deaf until release is closed, and then the record.
type released struct{ *deaf }

func (r *released) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	select {
	case <-r.release:
		return r.RaceDecider.ReadCurrent(ctx)
	default:
		return r.deaf.ReadCurrent(ctx)
	}
}

// byValue is a decider whose values cannot be compared.
type byValue struct {
	leaderelection.RaceDecider
	options any
}

func TestDecidersThatCannotBeCompared(t *testing.T) {
	one := byValue{memory.NewDecider(), []string{"x"}}
	s := newStores(func(string) (leaderelection.RaceDecider, error) { return one, nil })
	if err := s.distinct(t.Context(), coordinatorName, assignmentName); err != nil {
		t.Error(err)
	}
}

// A Store that returns deciders of one record for all seats: there is no end of seats that are
// held, or were. It is refused, and nobody reads without end.
func TestOneRecordForAllSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seat, said := memory.NewDecider(), &said{}
		var asked atomic.Int64
		others := map[string]*memory.Decider{coordinatorName: memory.NewDecider(), assignmentName: memory.NewDecider()}
		store := func(name string) (leaderelection.RaceDecider, error) {
			if d := others[name]; d != nil {
				return d.Handle(), nil
			}
			if asked.Add(1) > 100 {
				time.Sleep(time.Second) // else the test would have no end
			}
			return seat.Handle(), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cfg := Config{Store: store, MemberID: "a", Shards: Numbered(3), OnOwned: func(context.Context, *Owned) error { return nil }, Logger: said.logger()}
		m, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		cfg.MemberID = "b"
		if err := cfg.Join(ctx); !errors.Is(err, errOneRecord) {
			t.Errorf("the second member: %v", err)
		}
		if cancel(); asked.Load() > 20 || !said.has("level=ERROR", errOneRecord.Error()) {
			t.Errorf("the Store was asked for %d seats; said: %v", asked.Load(), said)
		}
		_ = m.Wait()
		time.Sleep(time.Minute)
	})
}
