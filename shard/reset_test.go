//go:build go1.25

package shard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// operator is one of g's group.
func (g *group) operator() Operator {
	return Operator{Store: func(name string) (leaderelection.RaceDecider, error) { return g.record(name).Handle(), nil }}
}

// stopAll has all members leave, and waits for a term.
func (g *group) stopAll() {
	for _, p := range g.all() {
		p.leave()
	}
	time.Sleep(T)
}

// After a reset tokens go on from the number that the operator named, also where the record
// was deleted, and whoever watches hears of it.
func TestResetOfADeletedAssignment(t *testing.T) {
	both(t, func(g *group) {
		ctx, cancel := context.WithCancel(context.Background())
		watched := make(chan error)
		var last *Assignment
		go func() {
			watched <- WatchConfig{Store: func(name string) (leaderelection.RaceDecider, error) {
				return g.record(name).Handle().Polled(), nil
			}}.Watch(ctx, func(_ context.Context, a *Assignment) { last = a })
		}()
		for _, id := range []string{"a", "b"} {
			g.join(id)
			g.settles(12, time.Minute)
		}
		g.stopAll()
		version := g.record(assignmentName).Entry().ElectionNumber
		g.record(assignmentName).Replace(nil)
		after := leaderelection.ElectionNumber(time.Now().Unix() + 1000)
		if err := g.operator().Reset(ctx, after, false); err != nil {
			g.t.Fatal(err)
		}
		if e := g.record(assignmentName).Entry(); e.ElectionNumber <= version {
			g.t.Errorf("version %d after %d: observers do not heed it", e.ElectionNumber, version)
		}
		g.join("c")
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		cancel()
		<-watched
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
		g.join("a")
		g.settles(12, time.Minute)
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
		a, b := g.join("a"), g.join("b")
		g.settles(12, time.Minute)
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

// broken is a record whose bytes are none.
type broken struct {
	*memory.Decider
	mended bool
}

func (b *broken) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	e, err := b.Decider.ReadCurrent(ctx)
	if err == nil && !b.mended {
		return nil, &leaderelection.DamagedRecordError{Token: e.Token, Err: errors.New("it is not JSON")}
	}
	return e, err
}

func (b *broken) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	t, err := b.Decider.WriteEntry(ctx, e)
	b.mended = b.mended || err == nil
	return t, err
}

// Damaged records are replaced only when that is forced; then damaged seats are no matter.
func TestResetOfADamagedAssignment(t *testing.T) {
	for _, damaged := range []string{assignmentName, coordinatorName, seatName(0), seatName(1)} {
		play(t, func(g *group) {
			g.join("a")
			g.join("b")
			g.settles(12, time.Minute)
			g.stopAll()
			record := &broken{Decider: g.record(damaged).Handle()}
			op := Operator{Store: func(name string) (leaderelection.RaceDecider, error) {
				if name == damaged {
					return record, nil
				}
				return g.record(name).Handle(), nil
			}}
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
			g.join("c")
			g.settles(12, time.Minute)
			if o := g.members["c"].member.Owned(); len(o) != 12 || o[0].ElectionNumber() != after+1 {
				t.Errorf("%s was damaged: %d shards, %+v", damaged, len(o), o)
			}
		})
	}
}
