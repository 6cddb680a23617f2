//go:build go1.25

package rules

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 14: every write raises (ElectionNumber, Extension); a new leadership starts
// Extension at 0; no two records are alike.
func TestRule14EveryWriteRaisesTheOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		var written []le.RaceEntry
		watch := func(op memory.Op) memory.Fault {
			if op.Kind == memory.Feed {
				written = append(written, *op.Entry)
			}
			return memory.Fault{}
		}
		observer := d.Handle()
		observer.Inject(watch)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = le.WatchConfig{Decider: observer}.Watch(ctx, func(context.Context, le.RaceEntry) {})
		}()
		a, b := join(t, d, "a"), join(t, d, "b")
		sleep(30 * time.Second)
		if err := le.Transfer(t.Context(), d, "b"); err != nil {
			t.Fatal(err)
		}
		sleep(30 * time.Second)
		if err := le.StepDown(t.Context(), d, false); err != nil {
			t.Fatal(err)
		}
		sleep(30 * time.Second)
		a.quit()
		synctest.Wait() // a feed may merge a leadership's beginning with its end
		b.quit()
		cancel()
		<-done
		if len(written) < 10 {
			t.Fatalf("only %d records seen", len(written))
		}
		numbers := map[le.ElectionNumber]uint64{written[0].ElectionNumber: 0}
		for i, e := range written[1:] {
			if e.Compare(&written[i]) <= 0 {
				t.Errorf("record %d/%d follows %d/%d", e.ElectionNumber, e.Extension, written[i].ElectionNumber, written[i].Extension)
			}
			if _, known := numbers[e.ElectionNumber]; !known && e.Extension != 0 {
				t.Errorf("leadership %d starts with extension %d", e.ElectionNumber, e.Extension)
			}
			numbers[e.ElectionNumber] = e.Extension
		}
	})
}

// lying is a decider whose reads return what the test wants.
type lying struct {
	le.RaceDecider
	read func(*le.RaceEntry, error) (*le.RaceEntry, error)
}

func (l *lying) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	return l.read(l.RaceDecider.ReadCurrent(ctx))
}

// Rule 14: an older record, read or pushed, is never news.
func TestRule14OlderRecordsAreNoNews(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		old := rival(3)
		old.TermExpiry = time.Now().Add(-time.Minute)
		d.Replace(old)
		stale := d.Entry()
		a := join(t, d, "a", func(c *config) {
			c.Decider = &lying{c.Decider.(*memory.Decider).Polled(), func(e *le.RaceEntry, err error) (*le.RaceEntry, error) {
				if err == nil && e.ElectionNumber > 3 {
					return stale.Clone(), nil
				}
				return e, err
			}}
		})
		sleep(time.Second)
		a.leads(t)
		// A lost answer makes it read, and what it reads is the old record.
		a.store.Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		sleep(13 * time.Second)
		a.leads(t)
		if got := a.Leader(); got.LeaderID != "a" || got.ElectionNumber != 4 {
			t.Fatalf("an older record replaced what was known: %+v", got)
		}
		if seen := a.seenAll(); len(seen) != 2 || seen[1].ElectionNumber != 4 {
			t.Fatalf("LeaderChanged saw %+v", seen)
		}
	})
}

// Rule 7: a lost answer costs nothing while there is time: the record shows that
// the write happened, and the view moves to that very write's end.
func TestRule07LostAnswerIsReadBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		synctest.Wait()
		a.store.Inject(memory.LoseAnswers().On(memory.Write))
		sleep(5 * time.Minute)
		a.leads(t)
		if a.count() != 1 {
			t.Fatalf("%d leaderships, want one that goes on", a.count())
		}
		if want := d.Entry().TermExpiry.Add(-S); !a.View().Get().Equal(want) {
			t.Fatalf("view until %v, the record allows %v", a.View().Get(), want)
		}
	})
}

// Rule 7: also for the acquisition itself.
func TestRule07LostAnswerOfTheAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write).Times(1))
			polled(c)
		})
		sleep(2 * time.Second)
		a.leads(t)
		if r := a.leadership(t, 0); r.number != first || !r.view.Get().Equal(d.Entry().TermExpiry.Add(-S)) {
			t.Fatalf("%v until %v, want the first election with the view of the write that landed", r, r.view.Get())
		}
	})
}

// Rule 7: one's own record proves only the write with its own TermExpiry: an
// operator's Transfer over the older state proves nothing, and leaves the view.
func TestRule07OwnButOlderLeavesTheView(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		synctest.Wait()
		before := a.View().Get()
		a.store.Inject(memory.LoseRequests().On(memory.Write)) // reads work, writes never arrive
		sleep(7 * time.Second)
		// Somebody else's write over the same state, with the old TermExpiry.
		e := d.Entry()
		e.Extension++
		d.Replace(e)
		sleep(6 * time.Second)
		if got := a.View().Get(); !got.Equal(before) {
			t.Fatalf("the view moved to %v by a record that still says %v", got, before.Add(S))
		}
		a.leads(t)
		a.store.Inject(nil)
		sleep(3 * time.Second)
		if a.leadership(t, 0).view.ValueInFuture() && a.View().Get().Equal(before) {
			t.Fatal("the view outlived its end")
		}
	})
}

// Rule 7: an acquisition that is answered after its view's end starts no leadership.
func TestRule07AcquisitionAnsweredTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		release := make(chan struct{})
		a := join(t, d, "a", func(c *config) {
			h := c.Decider.(*memory.Decider)
			h.Inject(memory.Hang(release).On(memory.Write))
			polled(c)
		})
		sleep(time.Second / 2)
		a.store.Inject(memory.LoseRequests())
		sleep(14 * time.Second)
		close(release) // it lands, and is answered, half a second too late
		synctest.Wait()
		if n := a.count(); n != 0 {
			t.Fatalf("%d leaderships by an acquisition whose view was over", n)
		}
		if e := d.Entry(); e.LeaderID != "a" || e.ElectionNumber != first {
			t.Fatalf("the late write did not land: %+v", e)
		}
		a.store.Inject(nil)
		sleep(5 * T / 4)
		a.leads(t)
		if got := a.View().ElectionNumber(); got != first+1 {
			t.Fatalf("number %d, want the next: one's own record acquired anew", got)
		}
	})
}

// Rule 7: ErrLostRace is a question: one that a client's own retry of a landed
// write earns ousts nobody.
func TestRule07ErrLostRaceForOnesOwnWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		synctest.Wait()
		a.store.Inject(memory.Always(memory.Fault{Err: le.ErrLostRace, Lands: true}).On(memory.Write))
		sleep(5 * time.Minute)
		a.leads(t)
		if a.count() != 1 {
			t.Fatalf("%d leaderships, want one", a.count())
		}
	})
}

// Rule 8: a newer record of another Incarnation, pushed or read, ends view and
// ctx at once with ErrOusted.
func TestRule08LossEndsViewAndCtxAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(time.Second)
		r := a.leadership(t, 0)
		d.Replace(rival(first + 1))
		synctest.Wait()
		if r.view.ValueInFuture() || !errors.Is(context.Cause(r.ctx), le.ErrOusted) {
			t.Fatalf("pushed: view alive %v, cause %v", r.view.ValueInFuture(), context.Cause(r.ctx))
		}
		if len(a.ousted) != 1 {
			t.Fatalf("OnOusting ran %d times", len(a.ousted))
		}
	})
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		sleep(time.Second)
		r := a.leadership(t, 0)
		d.Replace(rival(first + 1))
		sleep(6*time.Second - time.Millisecond)
		if !r.view.ValueInFuture() {
			t.Fatal("ended before it could know")
		}
		sleep(time.Millisecond) // the extension loses
		if r.view.ValueInFuture() || !errors.Is(context.Cause(r.ctx), le.ErrOusted) {
			t.Fatalf("lost race: view alive %v, cause %v", r.view.ValueInFuture(), context.Cause(r.ctx))
		}
	})
}

// Rule 8: the Incarnation counts, not the LeaderID.
func TestRule08OustedUnderOnesOwnID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(time.Second)
		twin := rival(first + 1)
		twin.LeaderID = "a"
		d.Replace(twin)
		synctest.Wait()
		a.follows(t)
		if r := a.leadership(t, 0); !errors.Is(r.cause, le.ErrOusted) {
			t.Fatalf("cause %v, want ErrOusted", r.cause)
		}
	})
}

// Rule 8: two processes with one LeaderID never both lead, and it is reported.
func TestRule08OneLeaderIDTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		one, two := join(t, d, "same"), join(t, d, "same")
		for range 600 {
			sleep(100 * time.Millisecond)
			if one.View().ValueInFuture() && two.View().ValueInFuture() {
				t.Fatal("both lead")
			}
		}
		other := two
		if two.Status() == le.Leading {
			other = one
		}
		if len(other.double) != 1 {
			t.Fatalf("reported %d times to the one that waits, want once a leadership", len(other.double))
		}
	})
}

// A job that is begun anew in each period may take longer than one: two processes of a machine then
// have its name, and that is no mistake.
func TestJobOfTheLastPeriodIsNoDouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		hold := func(c *config) { c.Hold = time.Hour }
		one := join(t, d, "same", hold)
		sleep(time.Minute)
		two := join(t, d, "same", hold)
		sleep(time.Minute)
		if len(one.double)+len(two.double) != 0 || one.Status() != le.Leading || two.Status() != le.Following {
			t.Errorf("reported %d and %d times", len(one.double), len(two.double))
		}
	})
}

// Rule 5: the number of a new leadership is one more than the greatest ever seen,
// also when the store was set back.
func TestRule05NumbersNeverGoBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		held := rival(41)
		held.TermExpiry = time.Now()
		d.Replace(held)
		a := join(t, d, "a")
		b := join(t, d, "b")
		sleep(10 * time.Second)
		leader, other := a, b
		if b.Status() == le.Leading {
			leader, other = b, a
		}
		if got := leader.View().ElectionNumber(); got != 42 {
			t.Fatalf("number %d, want 42", got)
		}
		// The store is restored from a backup, and the leader dies.
		backup := rival(12)
		backup.TermExpiry = time.Now().Add(-time.Hour)
		leader.store.Inject(memory.LoseRequests())
		d.Replace(backup)
		restored := time.Now()
		sleep(4 * T)
		other.leads(t)
		if got := other.View().ElectionNumber(); got != 44 { // 43 has shown that the store was set back, and began no leadership
			t.Fatalf("number %d after the store was set back, want 44", got)
		}
		if n := len(other.opsSince(restored, le.OpAcquire)); n > 2 {
			t.Fatalf("%d acquisitions: it groped its way up from the number in the backup", n)
		}
	})
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(time.Minute)
		d.Replace(nil) // removed altogether, under a leader
		sleep(time.Minute)
		a.leads(t)
		if a.count() != 1 || d.Entry().ElectionNumber != first || d.Entry().LeaderID != "a" {
			t.Fatalf("the leader did not put its record back: %+v after %d leaderships", d.Entry(), a.count())
		}
	})
}

// A leader does not write over another's record that its reads call older: the
// other may lead by it, where the store was set back.
func TestRule08NoExtensionOverAnothersRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		held := rival(9)
		held.TermExpiry = time.Now().Add(-time.Minute)
		d.Replace(held)
		a := join(t, d, "a")
		sleep(time.Second)
		a.leads(t)
		other := rival(5)
		d.Replace(other)
		sleep(13 * time.Second)
		if e := d.Entry(); e.LeaderID != "rival" {
			t.Fatalf("overwritten: %+v", e)
		}
		sleep(2 * time.Second)
		a.follows(t)
	})
}

// Release keeps the record, its number and who gave it up.
func TestRule14ReleaseLeavesAVacantRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort = []string{"h:1"} })
		sleep(10 * time.Second)
		of := d.Entry().Incarnation
		a.quit()
		e := d.Entry()
		if !e.Vacant() || e.ElectionNumber != first || e.Extension != 2 || e.Incarnation != of || e.WriteID != "" || e.Successor != "" || len(e.HostPort) != 0 || !e.TermExpiry.Equal(time.Now()) {
			t.Fatalf("released record %+v", e)
		}
		if kinds := a.opsSince(time.Now(), le.OpRelease); len(kinds) != 1 {
			t.Fatalf("release took %v", kinds)
		}
		if !slices.ContainsFunc(a.seenAll(), func(e le.RaceEntry) bool { return e.Vacant() }) {
			t.Fatal("LeaderChanged was not told of the vacancy")
		}
	})
}

// Rule 10 of docs/record.md: what a newer version has added is handed on by every write,
// whoever makes it.
func TestUnknownFieldsSurviveEveryWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.Extra = map[string]string{"colour": "7", "zone": `"a"`}
		d.Replace(e)
		seen := map[string]bool{}
		check := func(what string, is bool) {
			t.Helper()
			e := d.Entry()
			if !is {
				t.Fatalf("%s: the record is %+v", what, e)
			}
			if seen[what] = true; len(e.Extra) != 2 || e.Extra["colour"] != "7" || e.Extra["zone"] != `"a"` {
				t.Errorf("%s: extra %v", what, e.Extra)
			}
		}
		a := join(t, d, "a")
		sleep(T + S + spread)
		check("acquisition", d.Entry().LeaderID == "a" && d.Entry().Extension == 0)
		sleep(8 * time.Second)
		check("extension", d.Entry().LeaderID == "a" && d.Entry().Extension > 0)
		a.stop()
		sleep(time.Second)
		check("release", d.Entry().Vacant())
		if err := le.Transfer(t.Context(), d, "b"); err != nil {
			t.Fatal(err)
		}
		check("request", d.Entry().Successor == "b")
	})
}

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

// What a leader announces is on record at once, by one extension more, and its
// leadership goes on.
func TestAnnounceIsOneExtension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort = []string{"old:1"} })
		sleep(8 * time.Second) // the first extension was at 7 s
		began := time.Now()
		sleep(2 * time.Second)
		host, params := []string{"new:1"}, []byte("v2")
		if err := a.Announce(host, params); err != nil {
			t.Fatal(err)
		}
		host[0], params[0] = "scribbled", 'x' // they are the caller's
		synctest.Wait()
		if e := d.Entry(); !slices.Equal(e.HostPort, []string{"new:1"}) || string(e.ConnectionParams) != "v2" || e.ElectionNumber != first {
			t.Errorf("on record is %+v", e)
		}
		sleep(4 * time.Second)
		if ops := a.opsSince(began); len(ops) != 1 || ops[0].Kind != le.OpExtend {
			t.Errorf("it took %+v, want one extension", ops)
		}
		if a.count() != 1 || a.leadership(t, 0).ctx.Err() != nil {
			t.Error("the leadership has ended")
		}
	})
}

// Announcements in a row make no more than one write a second, of the newest.
func TestAnnounceIsPaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(2 * time.Second)
		began := time.Now()
		for i := range 1000 {
			if err := a.Announce(nil, []byte{byte(i), byte(i >> 8)}); err != nil {
				t.Fatal(err)
			}
			sleep(4 * time.Millisecond)
		}
		sleep(2 * time.Second)
		if n := len(a.opsSince(began)); n > 6 {
			t.Errorf("%d store operations in 6 s", n)
		}
		if p := d.Entry().ConnectionParams; !slices.Equal(p, []byte{999 & 255, 999 >> 8}) {
			t.Errorf("on record is %v", p)
		}
	})
}

// A store that fails is asked no more often for an announcement than for an extension.
func TestAnnounceBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(2 * time.Second)
		a.store.Inject(memory.Fail(errors.New("no")).On(memory.Write))
		began := time.Now()
		if err := a.Announce([]string{"new:1"}, nil); err != nil {
			t.Fatal(err)
		}
		sleep(4 * time.Second)
		if n := len(a.opsSince(began, le.OpExtend)); n > 6 {
			t.Errorf("%d writes in 4 s, want at most 6: the pauses double from half a second", n)
		}
	})
}

// What a standby announces, or one that has lost, is what it tells when it leads.
func TestAnnounceIsKeptForTheNextLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort = []string{"a:1"} })
		sleep(time.Second)
		b := join(t, d, "b", func(c *config) { c.HostPort = []string{"b:1"} })
		sleep(time.Second)
		if err := b.Announce([]string{"b:2"}, nil); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		if h := d.Entry().HostPort; !slices.Equal(h, []string{"a:1"}) {
			t.Fatalf("a standby has written %v", h)
		}
		a.quit()
		sleep(time.Second)
		b.leads(t)
		if h := d.Entry().HostPort; !slices.Equal(h, []string{"b:2"}) {
			t.Errorf("it leads at %v", h)
		}
	})
}

// Announce refuses what Config does, and does nothing then, nor when all is over.
func TestAnnounceRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort = []string{"a:1"} })
		sleep(2 * time.Second)
		for want, params := range map[string][]byte{"UTF-8": nil, "196608": make([]byte, 150<<10)} {
			if err := a.Announce([]string{"a\xff"}, params); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		sleep(4 * time.Second)
		if h := d.Entry().HostPort; !slices.Equal(h, []string{"a:1"}) {
			t.Errorf("on record is %q", h)
		}
		a.quit()
		if err := a.Announce(nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// An observer is told of an announcement as of any extension.
func TestAnnounceReachesObservers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort = []string{"a:1"} })
		sleep(2 * time.Second)
		var seen []string
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = le.WatchConfig{Decider: d, MaxClockSkew: S}.Watch(ctx, func(_ context.Context, e le.RaceEntry) { seen = append(seen, e.HostPort...) })
		}()
		sleep(time.Second)
		if err := a.Announce([]string{"a:2"}, nil); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		stop()
		<-done
		if !slices.Equal(seen, []string{"a:1", "a:2"}) {
			t.Errorf("seen %v", seen)
		}
	})
}

// What is announced may take as much of a record as is allowed, if each byte of an address
// is written as six, and not a byte more.
func TestAnnounceAsMuchAsARecordKeeps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a")
		for n, fits := range map[int]bool{(192<<10)/6 - 2: true, (192<<10)/6 - 1: false} {
			if err := a.Announce([]string{strings.Repeat("\x01", n) + ":1"}, nil); (err == nil) != fits {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	})
}

// An announcement never puts an extension off, also if these are more frequent.
func TestAnnounceDelaysNoExtension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.ExtendEvery = T / 20 })
		sleep(10 * time.Second)
		began := time.Now()
		if err := a.Announce([]string{"new:1"}, nil); err != nil {
			t.Fatal(err)
		}
		sleep(600 * time.Millisecond) // the last extension was 250 ms before
		if ops := a.opsSince(began, le.OpExtend); len(ops) != 1 || !slices.Equal(d.Entry().HostPort, []string{"new:1"}) {
			t.Errorf("%+v, on record is %v", ops, d.Entry().HostPort)
		}
	})
}

// A Config's HostPort and ConnectionParams are the caller's again when Start has returned.
func TestAnnouncedByConfigIsACopy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		host, params := []string{"a:1"}, []byte("v1")
		a := join(t, d, "a", func(c *config) { c.HostPort, c.ConnectionParams = host, params })
		host[0], params[0] = "scribbled", 'x'
		sleep(T)
		if e := d.Entry(); !slices.Equal(e.HostPort, []string{"a:1"}) || string(e.ConnectionParams) != "v1" {
			t.Errorf("on record is %+v", e)
		}
		a.leads(t)
	})
}

// Either of the two that are announced is reason enough to write.
func TestAnnounceOfOneOfTheTwo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.HostPort, c.ConnectionParams = []string{"a:1"}, []byte("v1") })
		for _, c := range []struct{ host, params string }{{"a:1", "v2"}, {"a:2", "v2"}} {
			sleep(2 * time.Second)
			if err := a.Announce([]string{c.host}, []byte(c.params)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if e := d.Entry(); e.HostPort[0] != c.host || string(e.ConnectionParams) != c.params {
				t.Errorf("on record are %v and %q, want %+v", e.HostPort, e.ConnectionParams, c)
			}
		}
	})
}
