//go:build go1.25

package rules

import (
	"context"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// oneAtATime is a decider that does one thing at a time, and tells its place in turn as well.
type oneAtATime struct {
	le.RaceDecider
	turn chan struct{}
}

func (o *oneAtATime) take() (give func()) {
	o.turn <- struct{}{}
	return func() { <-o.turn }
}

func (o *oneAtATime) String() string {
	defer o.take()()
	return "a place"
}

func (o *oneAtATime) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	defer o.take()()
	return o.RaceDecider.ReadCurrent(ctx)
}

func (o *oneAtATime) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	defer o.take()()
	return o.RaceDecider.WriteEntry(ctx, e)
}

// Rule 13: the end of the leader's ctx waits for no store, also if the decider's String waits for
// the call that hangs.
func TestRule13PlaceThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a", polled, func(c *config) { c.Decider = &oneAtATime{c.Decider, make(chan struct{}, 1)} })
		sleep(T)
		a.leads(t)
		release := make(chan struct{})
		defer func() {
			close(release)
			sleep(time.Second)
		}()
		a.store.Inject(memory.Hang(release))
		begin := time.Now()
		<-a.leadership(t, 0).ctx.Done()
		if took := time.Since(begin); took > T-S {
			t.Errorf("ctx ended after %v", took)
		}
		a.store.Inject(nil)
	})
}

// after is closed after d.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

// Rule 9: an acquisition that was given up, and then fails, may have landed after the read that
// did not show it. Who stops asks again, and releases it.
func TestRule09AcquisitionThatFailsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Always(memory.Fault{Hang: after(T / 3), Err: memory.ErrLost, Lands: true}).On(memory.Write).Times(1))
		}, polled)
		sleep(time.Second)
		begin := time.Now()
		a.quit()
		if e := d.Entry(); !e.Vacant() || e.ElectionNumber != first {
			t.Errorf("the record is %+v after %v, want it released", e, time.Since(begin))
		}
	})
}
