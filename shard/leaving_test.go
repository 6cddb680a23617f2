//go:build go1.25

package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Rule 6: while a member leaves, each shard's view ends when its own OnOwned has returned,
// and at once if it had before.
func TestRule06EachShardEnds(t *testing.T) {
	play(t, func(g *group) {
		a := g.join("a", func(c *Config) {
			c.Shards = Numbered(3)
			c.OnOwned = func(ctx context.Context, o *Owned) error {
				switch o.Name() {
				case "1":
					<-ctx.Done()
					time.Sleep(time.Second)
				case "2":
					<-ctx.Done()
					time.Sleep(3 * time.Second)
				}
				return nil
			}
		})
		g.settles(3, time.Minute)
		owned := a.member.Owned()
		go func() { _ = a.member.Leave(context.Background()) }()
		for _, c := range []struct {
			after time.Duration
			may   [3]bool
		}{
			{500 * time.Millisecond, [3]bool{false, true, true}},
			{time.Second, [3]bool{false, false, true}},
			{3 * time.Second, [3]bool{false, false, false}},
		} {
			time.Sleep(c.after)
			if may := [3]bool{owned[0].ValueInFuture(), owned[1].ValueInFuture(), owned[2].ValueInFuture()}; may != c.may {
				t.Errorf("another %v later: %v, want %v", c.after, may, c.may)
			}
		}
		if n := len(a.member.Owned()); n != 0 {
			t.Errorf("%d are owned", n)
		}
	})
}

// slowReads is a decider whose reads wait to be let.
type slowReads struct {
	leaderelection.RaceDecider
	begun chan struct{}
	let   chan struct{}
}

func (s *slowReads) ReadCurrent(context.Context) (*leaderelection.RaceEntry, error) {
	s.begun <- struct{}{}
	<-s.let
	return &leaderelection.RaceEntry{}, nil
}

// What is told while the assignment is read is a reason to read it again: that read may have
// begun before.
func TestToldWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := seated(t)
		d := &slowReads{begun: make(chan struct{}, 2), let: make(chan struct{}, 2)}
		s.assignment = d
		s.again = true
		s.step()
		<-d.begun
		s.again = true
		s.step()
		synctest.Wait()
		if len(d.begun) > 0 {
			t.Error("it is read twice at a time")
		}
		d.let <- struct{}{}
		s.read(<-s.reads)
		s.step()
		synctest.Wait()
		if len(d.begun) != 1 {
			t.Error("it is not read again")
		}
		d.let <- struct{}{}
		s.read(<-s.reads)
		if s.step(); s.reading {
			t.Error("it is read once too often")
		}
	})
}

// A member that the coordinator's record refuses for good at first takes part in that election
// when it does not any more.
func TestCoordinatorsRecordRefuses(t *testing.T) {
	play(t, func(g *group) {
		refuses := g.joinRefused("a", coordinatorName)
		time.Sleep(2 * T)
		if n := g.counts()["a"]; n != 0 {
			g.t.Errorf("without a coordinator %d are owned", n)
		}
		refuses.Store(false)
		g.settles(12, 2*T)
	})
}
