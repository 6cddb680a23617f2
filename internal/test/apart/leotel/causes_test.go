package leotel_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// born is the first number of an election that begins with its bubble, in 2000.
const born le.ElectionNumber = 946684800

// Every leadership's end has its cause, also where OnElected had returned long before:
// many candidates only start things there. The status then goes from Leading to
// Following at once, with nothing to drain.
func TestCausesAfterOnElectedHasReturned(t *testing.T) {
	for _, c := range []struct {
		cause string
		end   func(*testing.T, *memory.Decider, *le.Campaign)
	}{
		{"expired", func(_ *testing.T, store *memory.Decider, _ *le.Campaign) { store.Inject(memory.LoseRequests()) }},
		{"ousted", func(_ *testing.T, store *memory.Decider, _ *le.Campaign) {
			store.Replace(&le.RaceEntry{LeaderID: "b", Incarnation: "b", ElectionNumber: born + 1, TermLength: T, TermExpiry: time.Now().Add(T)})
		}},
		{"resigned", func(t *testing.T, _ *memory.Decider, c *le.Campaign) {
			if err := c.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		{"resigned", func(t *testing.T, store *memory.Decider, _ *le.Campaign) {
			if err := le.StepDown(t.Context(), store.Handle(), false); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(c.cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				r := newRig(t, "a", nil)
				store := memory.NewDecider()
				var changes []le.StatusChange
				campaign, err := le.Config{
					Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S, OnElected: func(context.Context, *le.TimeView) {},
					Trace: le.JoinTraces(r.Trace(), &le.Trace{StatusChanged: func(c le.StatusChange) { changes = append(changes, c) }}),
				}.Start(ctx)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				r.expect(t, map[string]float64{"is_leader": 1, "transitions{won,elected}": 1})
				c.end(t, store, campaign)
				// Until the view has ended, and no longer than nobody else leads.
				time.Sleep(T - S)
				synctest.Wait()
				got := r.read(t)
				if got["is_leader"] != 0 || got["transitions{"+c.cause+",ended}"] != 1 {
					t.Errorf("%v, told of %+v", got, changes)
				}
				for name, n := range got {
					if other := "transitions{" + c.cause + ",ended}"; strings.HasPrefix(name, "transitions{") && name != other && name != "transitions{won,elected}" && n != 0 {
						t.Errorf("%s: %v", name, n)
					}
				}
				for _, change := range changes {
					if change.From == le.Leading && change.Number != born {
						t.Errorf("the end is told as %+v", change)
					}
				}
				store.Inject(nil)
				store.Replace(&le.RaceEntry{LeaderID: "c", Incarnation: "c", ElectionNumber: born + 9, TermLength: T, TermExpiry: time.Now().Add(T)})
				time.Sleep(T)
				synctest.Wait()
				if cause, previous := r.handover(); cause != c.cause || previous != int64(born) {
					t.Errorf("the hand-over's span has cause %q and previous leadership %d", cause, previous)
				}
				cancel()
				<-campaign.Done()
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// handover returns the cause of the first hand-over's span, and the leadership it ended.
func (r *rig) handover() (cause string, previous int64) {
	for _, s := range r.spans.Ended() {
		if s.Name() != "leaderelection.handover" {
			continue
		}
		set := attribute.NewSet(s.Attributes()...)
		c, _ := set.Value("leaderelection.cause")
		p, _ := set.Value("leaderelection.previous_fencing_token")
		return c.AsString(), p.AsInt64()
	}
	return "none", 0
}

// A record whose writer's clock means nothing here is a leader's for a term from
// when it was seen: its expiry, hours away in either direction, does not count.
func TestLeaderlessTimeWithoutClocksInCommon(t *testing.T) {
	for _, ahead := range []time.Duration{-5 * time.Hour, 5 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "", nil)
			trace := r.Trace()
			trace.News(le.RaceEntry{LeaderID: "a", ElectionNumber: 1, Unsynchronized: true, TermLength: T, TermExpiry: time.Now().Add(ahead)})
			time.Sleep(T)
			r.expect(t, map[string]float64{"leaderless.time": 0})
			time.Sleep(T)
			r.expect(t, map[string]float64{"leaderless.time": T.Seconds()})
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
