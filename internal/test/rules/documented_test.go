//go:build go1.25

package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A release that is refused as a lost race, each time at once, is tried again with pauses: at
// most four writes a second, each after a read.
func TestRule11RefusedReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, a := leader(t, polled)
		a.store.Inject(memory.Fail(&le.LostRaceError{}).On(memory.Write))
		left := time.Now()
		a.stop()
		<-a.Done()
		tries, took := len(a.opsSince(left)), time.Since(left).Seconds()
		if tries < 2 || float64(tries) > 8*(took+1) {
			t.Errorf("%d calls in %v s", tries, took)
		}
	})
}

// OnOusting's ctx ends with DrainTimeout, to the moment, whatever else there is to wake up for.
func TestRule09OnOustingEndsToTheMoment(t *testing.T) {
	const drain = 2500 * time.Millisecond
	for name, end := range map[string]func(m *member, d *memory.Decider){
		"stopped": func(m *member, _ *memory.Decider) { m.stop() },
		"ousted":  func(_ *member, d *memory.Decider) { d.Replace(rival(first + 1)) },
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			var ended time.Time
			a := join(t, d, "a", func(c *config) {
				c.DrainTimeout = drain
				c.OnOusting = func(ctx context.Context) { <-ctx.Done(); ended = time.Now() }
			})
			sleep(time.Second)
			a.leads(t)
			left := time.Now()
			end(a, d)
			sleep(time.Minute)
			if took := ended.Sub(left); took != drain {
				t.Errorf("OnOusting's ctx ended after %v, want %v", took, drain)
			}
		})
	}
}

// OnOusting comes after OnElected, even if the news that another leads is here together with the answer
// by which a leadership begins.
func TestContractOnOustingComesSecond(t *testing.T) {
	before := 0
	for range 200 {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(vacantAt(4))
			const slow = 2 * time.Second
			var mu sync.Mutex
			var calls []string
			call := func(name string) { mu.Lock(); defer mu.Unlock(); calls = append(calls, name) }
			a := join(t, d, "a", func(c *config) {
				c.Decider.(*memory.Decider).Inject(memory.Slow(slow).On(memory.Write).Times(1))
				c.OnElected = func(context.Context, *le.TimeView) { call("OnElected") }
				c.OnOusting = func(context.Context) { call("OnOusting") }
			})
			time.Sleep(slow)
			d.Replace(rival(first + 1e6))
			sleep(time.Second)
			a.quit()
			if len(calls) > 0 && calls[0] == "OnOusting" {
				before++
			}
		})
	}
	if before > 10 { // two goroutines that begin one after the other may still do their first thing the other way round
		t.Errorf("OnOusting came first %d times", before)
	}
}

// Transfer says nil when the request can be granted: not for a reservation that is over, nor for one
// whose end an operator's clock cannot tell, nor to a leader who was asked to go already.
func TestRule18NilMeansOnRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, until := range map[string]*le.RaceEntry{
			"over":           {TermExpiry: time.Now().Add(-time.Second)},
			"over now":       {TermExpiry: time.Now()},
			"of other times": {TermExpiry: time.Now().Add(time.Hour), Unsynchronized: true},
		} {
			d := memory.NewDecider()
			e := vacantAt(5)
			e.Successor, e.TermExpiry, e.Unsynchronized = "c", until.TermExpiry, until.Unsynchronized
			d.Replace(e)
			if err := le.Transfer(t.Context(), d, "c"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if now := d.Entry(); now.Extension != e.Extension+1 || now.Successor != "c" || !now.TermExpiry.Equal(time.Now().Add(T)) {
				t.Errorf("a reservation that is %s was left as it is: %+v", name, now)
			}
		}
		d := memory.NewDecider()
		e := rival(5)
		e.Successor = "other"
		d.Replace(e)
		err := le.Transfer(t.Context(), d, "rival")
		if err == nil || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("to a leader who was asked to hand over: %v", err)
		}
	})
}

// Watch merges extensions, and no two leaderships, however close they follow each other.
func TestWatchMergesNoLeaderships(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(1))
		goOn := make(chan struct{})
		var told []le.ElectionNumber
		stop := watch(t, le.WatchConfig{Decider: d}, func(e le.RaceEntry) {
			told = append(told, e.ElectionNumber)
			<-goOn
		})
		sleep(time.Second)
		for n := range le.ElectionNumber(4) {
			d.Replace(rival(n + 2))
			sleep(time.Second)
		}
		close(goOn)
		sleep(time.Second)
		if stop(); !slices.Equal(told, []le.ElectionNumber{1, 2, 3, 4, 5}) {
			t.Errorf("told of %v", told)
		}
	})
}

// A store that has judged a write works: what it refuses for good afterwards passes, or not.
func TestRule17AJudgedWriteHasWorked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		writes := 0
		a := join(t, d, "a", func(c *config) {
			refuse := memory.Fail(&le.LostRaceError{}).On(memory.Write)
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				if op.Kind != memory.Write {
					return memory.Fault{}
				}
				if writes++; writes == 1 {
					return refuse(op)
				}
				return memory.Fault{Err: fmt.Errorf("no permission: %w", le.ErrPermanent)}
			})
			polled(c)
		})
		sleep(10 * T)
		if a.Status() == le.Stopped || writes < 2 {
			t.Fatalf("after %d writes it has stopped: %v", writes, a.Wait())
		}
		a.store.Inject(nil)
		sleep(T)
		a.leads(t)
	})
}

// LeaderChanged tells of another process that leads by the number and the LeaderID of one whose
// acquisition was undone.
func TestLeaderChangedTellsOfAnotherIncarnation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(4))
		a := join(t, d, "a")
		sleep(time.Second)
		undone, landed := rival(5), rival(5)
		undone.Incarnation, landed.Incarnation = "undone's", "landed's"
		d.Tell(undone)
		sleep(time.Second)
		d.Tell(nil)
		d.Replace(landed)
		sleep(time.Second)
		var told []string
		for _, e := range a.seenAll() {
			told = append(told, e.Incarnation)
		}
		if !slices.Equal(told, []string{"rival's", "undone's", "landed's"}) {
			t.Errorf("told of %q", told)
		}
	})
}
