//go:build go1.25

package rules

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// born is the first ElectionNumber of a record that begins now.
func born() le.ElectionNumber { return le.ElectionNumber(time.Now().Unix()) }

// TestRule05NumbersAreBornWithTheTime: whatever strangers make of the record, a leadership of
// a candidate that knows nothing of those before has a greater number than they had.
func TestRule05NumbersAreBornWithTheTime(t *testing.T) {
	for what, leaves := range map[string]*le.RaceEntry{"deleted": nil, "emptied": {}} {
		for kind, adjust := range map[string]func(*config){
			"":               func(*config) {},
			"polled":         polled,
			"unsynchronized": func(c *config) { c.ClockPolicy = le.Unsynchronized },
		} {
			t.Run(what+" "+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					d := memory.NewDecider()
					first := born()
					a := join(t, d, "a", adjust)
					sleep(time.Second)
					if a.leads(t); a.View().ElectionNumber() != first {
						t.Fatalf("the first number is %d, want the seconds since 1970: %d", a.View().ElectionNumber(), first)
					}
					for range 3 {
						led := a.View().ElectionNumber()
						a.quit()
						d.Replace(leaves)
						a = join(t, d, "a", adjust)
						sleep(2 * T)
						if a.leads(t); a.View().ElectionNumber() <= led {
							t.Fatalf("leadership %d after leadership %d", a.View().ElectionNumber(), led)
						}
						if a.Resign(t.Context()); d.Entry().ElectionNumber != a.leadership(t, 0).number {
							t.Fatalf("%+v is left by leadership %d", d.Entry(), a.leadership(t, 0).number)
						}
						sleep(2 * T)
						if a.leads(t); a.View().ElectionNumber() != a.leadership(t, 0).number+1 {
							t.Fatalf("leadership %d follows leadership %d", a.View().ElectionNumber(), a.leadership(t, 0).number)
						}
					}
				})
			})
		}
	}
}

// TestRule05KnownNumbersCount: a number that was seen counts if it is greater than the time.
func TestRule05KnownNumbersCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(born() + 1000)
		d.Replace(e)
		a := join(t, d, "a", polled)
		sleep(time.Second)
		d.Replace(nil)
		sleep(3 * T)
		if a.leads(t); a.View().ElectionNumber() <= e.ElectionNumber || a.View().ElectionNumber() > e.ElectionNumber+2 {
			t.Errorf("the number is %d after %d", a.View().ElectionNumber(), e.ElectionNumber)
		}
		for _, op := range a.opsSince(time.Time{}, le.OpAcquire) {
			if op.Number <= e.ElectionNumber {
				t.Errorf("number %d was asked for after %d", op.Number, e.ElectionNumber)
			}
		}
	})
}

// farClock is at another time, and runs like the system's.
type farClock struct {
	clocks.SystemClock
	began, at time.Time
}

func (f farClock) Now() time.Time                  { return f.at.Add(time.Since(f.began)) }
func (f farClock) Until(t time.Time) time.Duration { return t.Sub(f.Now()) }
func (f farClock) SleepUntil(ctx context.Context, t time.Time) bool {
	return f.SleepFor(ctx, f.Until(t))
}

// TestRule05OddClocks: a clock that is before 1970, or beyond what can be counted, gives a number
// all the same, and one that can be counted on from.
func TestRule05OddClocks(t *testing.T) {
	const last = 9223372036 // in the year 2262
	for what, c := range map[string]struct {
		at   time.Time
		want le.ElectionNumber
	}{
		"before 1970": {time.Unix(-1e9, 0), 1},
		"1970":        {time.Unix(1, 5), 1},
		"2261":        {time.Unix(last-1000, 0), last - 1000},
		"year 9998":   {time.Date(9998, 1, 1, 0, 0, 0, 0, time.UTC), last},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				join(t, d, "a", stayOn, func(cfg *config) {
					cfg.Clock = farClock{began: time.Now(), at: c.at}
				})
				sleep(time.Second)
				if n := d.Entry().ElectionNumber; n < c.want || n > c.want+10 {
					t.Errorf("the number is %d, want %d", n, c.want)
				}
			})
		})
	}
}

// TestEmptiedRecordIsWaitedFor: a record that is empty and not new is nobody's for a term.
// One that is not there may be new.
func TestEmptiedRecordIsWaitedFor(t *testing.T) {
	for kind, adjust := range map[string]func(*config){"pushed": func(*config) {}, "polled": polled} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				old := join(t, d, "old")
				sleep(T)
				old.store.Inject(memory.Fail(errors.New("cut off")))
				d.Replace(&le.RaceEntry{})
				cut := time.Now()
				a := join(t, d, "a", adjust)
				var none *le.NotElectedError
				if _, err := (le.Config{Decider: d.Handle(), LeaderID: "b", TermLength: T}).TryAcquire(t.Context()); !errors.As(err, &none) || !strings.Contains(err.Error(), "emptied") {
					t.Errorf("TryAcquire says %v", err)
				}
				for a.Status() != le.Leading {
					sleep(100 * time.Millisecond)
					if old.View().ValueInFuture() && a.View().ValueInFuture() {
						t.Fatal("two views are true")
					}
					if time.Since(cut) > 2*T {
						t.Fatal("nobody leads")
					}
				}
				if waited := time.Since(cut); waited < T+S {
					t.Errorf("waited for %v only", waited)
				}
				if a.View().ElectionNumber() <= old.leadership(t, 0).number {
					t.Errorf("leadership %d after leadership %d", a.View().ElectionNumber(), old.leadership(t, 0).number)
				}
			})
		})
	}
}

// TestRecordThatIsEmptiedAgainIsWaitedForAgain: each time that it is emptied somebody may have
// led before.
func TestRecordThatIsEmptiedAgainIsWaitedForAgain(t *testing.T) {
	for kind, adjust := range map[string]func(*config){"stamps": polled, "no stamps": unstamped} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				d.Replace(&le.RaceEntry{})
				a := join(t, d, "a", adjust)
				sleep(T - time.Second)
				d.Replace(&le.RaceEntry{})
				again := time.Now()
				for a.Status() != le.Leading {
					sleep(100 * time.Millisecond)
				}
				if waited := time.Since(again); waited < T+S {
					t.Errorf("waited for %v since it was emptied again", waited)
				}
			})
		})
	}
}
