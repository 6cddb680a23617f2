//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 18: Transfer on a held record sets Successor and raises Extension, and
// touches neither LeaderID nor TermExpiry. The leader drains and releases with
// the Successor named, who leads at once.
func TestRule18TransferFromALivingLeader(t *testing.T) {
	for kind, adjust := range styles {
		scene(t, kind, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", adjust)
			synctest.Wait()
			b, c := join(t, d, "b", adjust), join(t, d, "c", adjust)
			sleep(time.Second)
			before := d.Entry()
			// See the record as Transfer leaves it: hold the feeds up.
			var request *le.RaceEntry
			operator := d.Handle()
			operator.Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Write {
					request = op.Entry
				}
				return memory.Fault{}
			})
			asked := time.Now()
			must(t, le.Transfer(t.Context(), operator, "c"))
			if request.Successor != "c" || request.LeaderID != "a" || !request.TermExpiry.Equal(before.TermExpiry) ||
				request.Incarnation != before.Incarnation || request.ElectionNumber != before.ElectionNumber || request.Extension != before.Extension+1 {
				t.Fatalf("the request is %+v over %+v", request, before)
			}
			if kind == "pushed" {
				synctest.Wait()
			} else {
				sleep(T)
			}
			c.leads(t)
			a.follows(t)
			if b.count() != 0 {
				t.Fatal("b led in between")
			}
			if r := a.leadership(t, 0); !errors.Is(r.cause, le.ErrResigned) {
				t.Fatalf("cause %v, want ErrResigned", r.cause)
			}
			if e := d.Entry(); e.Successor != "" || e.ElectionNumber != first+1 {
				t.Fatalf("the acquisition left %+v", e)
			}
			limit := time.Duration(0)
			if kind == "polled" {
				limit = 6*time.Second + T/2
			}
			if took := c.leadership(t, 0).from.Sub(asked); took > limit {
				t.Fatalf("the hand-over took %v, want at most %v", took, limit)
			}
		})
	}
}

// Rule 18: what operators ask for.
func TestRule18Requests(t *testing.T) {
	scenes{
		"on a vacant record it is the reservation itself": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(&le.RaceEntry{ElectionNumber: 5, TermLength: T, TermExpiry: time.Now()})
			must(t, le.Transfer(t.Context(), d, "c"))
			if e := d.Entry(); !e.Vacant() || e.Successor != "c" || !e.TermExpiry.Equal(time.Now().Add(T)) || e.Extension != 1 {
				t.Fatalf("reservation %+v", e)
			}
			b := join(t, d, "b")
			sleep(T / 2)
			b.follows(t)
			c := join(t, d, "c")
			synctest.Wait()
			c.leads(t)
		},
		"of the leadership that was read first": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(3))
			operator := d.Handle()
			operator.Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Write && op.Entry.ElectionNumber == 3 {
					next := rival(4)
					next.LeaderID = "other"
					d.Replace(next)
				}
				return memory.Fault{}
			})
			err := le.Transfer(t.Context(), operator, "b")
			if !errors.Is(err, le.ErrLostRace) || !strings.Contains(err.Error(), `"other"`) {
				t.Fatalf("got %v, want ErrLostRace that names who leads now", err)
			}
			if e := d.Entry(); e.Successor != "" {
				t.Fatalf("the next leadership was asked: %+v", e)
			}
		},
		"outlasts a store that loses requests and answers": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a")
			synctest.Wait()
			b := join(t, d, "b")
			sleep(time.Second)
			operator := d.Handle()
			operator.Inject(memory.LoseAnswers().On(memory.Write).Times(1))
			must(t, le.Transfer(t.Context(), operator, "b"))
			synctest.Wait()
			b.leads(t)
			sleep(2 * T)
			operator.Inject(memory.LoseAnswers().On(memory.Write).Times(1))
			must(t, le.StepDown(t.Context(), operator, false))
			synctest.Wait()
			a.leads(t)
			operator.Inject(memory.LoseRequests())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := le.StepDown(ctx, operator, false); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, memory.ErrLost) {
				t.Fatalf("got %v, want the deadline and what the store said", err)
			}
			refused := fmt.Errorf("denied: %w", le.ErrPermanent)
			operator.Inject(memory.Fail(refused))
			if err := le.StepDown(t.Context(), operator, false); !errors.Is(err, le.ErrPermanent) {
				t.Fatalf("got %v, want ErrPermanent", err)
			}
			a.leads(t)
		},
		"between an acquisition and the read that shows it is granted, without OnElected": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", func(c *config) {
				write := memory.LoseAnswers().On(memory.Write).Times(1)
				read := memory.Fail(errors.New("cut off")).On(memory.Read)
				begin := time.Now()
				c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
					if passed := time.Since(begin); op.Kind == memory.Read && passed > 0 && passed < 3*time.Second {
						return read(op)
					}
					return write(op)
				})
				polled(c)
			})
			sleep(time.Second)
			if e := d.Entry(); e.LeaderID != "a" || a.count() > 0 {
				t.Fatalf("the acquisition has not landed, or was not lost: %+v", e)
			}
			b := join(t, d, "b")
			must(t, le.Transfer(t.Context(), d, "b"))
			sleep(T / 2)
			if a.count() > 0 {
				t.Error("a led though it had been asked to hand over")
			}
			b.leads(t)
		},
		"by a feed before the answer to the acquisition": func(t *testing.T) {
			d := memory.NewDecider()
			b := join(t, d, "b", faulty(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Write {
					return memory.Fault{AnswerDelay: time.Second}
				}
				return memory.Fault{}
			}))
			sleep(100 * time.Millisecond)
			must(t, le.Transfer(t.Context(), d, "c"))
			c := join(t, d, "c")
			sleep(5 * time.Second)
			if c.leads(t); b.count() > 0 || d.Entry().ElectionNumber != first+1 {
				t.Errorf("b led %d times; %+v", b.count(), d.Entry())
			}
		},
		"is nil if it can be granted: by no reservation that is over, or that no clock can tell": func(t *testing.T) {
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
		},
	}.run(t)
}

// Rule 18: nobody to ask is said, not waited for.
func TestRule18NobodyToAsk(t *testing.T) {
	dead := rival(3)
	dead.TermExpiry = time.Now().Add(-time.Second)
	for name, e := range map[string]*le.RaceEntry{"no election yet": nil, "the term has run out": dead} {
		t.Run(name, func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(e)
			for _, err := range []error{le.Transfer(t.Context(), d, "b"), le.StepDown(t.Context(), d, false)} {
				if !errors.Is(err, le.ErrNoLeader) {
					t.Errorf("got %v, want ErrNoLeader", err)
				}
			}
			if got := d.Entry(); e != nil && got.Successor != "" {
				t.Errorf("written all the same: %+v", got)
			}
		})
	}
	d := memory.NewDecider()
	d.Replace(&le.RaceEntry{ElectionNumber: 5, TermExpiry: time.Now()})
	if err := le.StepDown(t.Context(), d, false); !errors.Is(err, le.ErrNoLeader) {
		t.Errorf("StepDown of a vacant record: %v, want ErrNoLeader", err)
	}
}

// Asking for what is so already is no error; asking for nonsense is.
func TestRule18Arguments(t *testing.T) {
	d := memory.NewDecider()
	d.Replace(rival(1))
	for _, id := range []string{"rival", strings.Repeat("a", 1024)} { // the leader itself, and the longest
		if err := le.Transfer(t.Context(), d, id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", le.AnySuccessor, "a\xff", strings.Repeat("a", 1025)} {
		if err := le.Transfer(t.Context(), d, id); err == nil {
			t.Errorf("Transfer to %q was taken", id)
		}
	}
	if err := le.StepDown(t.Context(), nil, false); err == nil {
		t.Error("a nil decider was taken")
	}
}

// Reset refuses while somebody may lead, or is to, and takes the record when nobody does, or by force: the count
// goes on from what it was told. What is on record is judged with what is wrong in it bounded: it neither
// hides somebody who may lead, nor keeps the record for ever.
func TestResetRefusesWhileATermRuns(t *testing.T) {
	long := 2 * le.MaxTermLength
	vacant := func(e *le.RaceEntry) { e.LeaderID = "" }
	for name, c := range map[string]struct {
		spoil func(*le.RaceEntry)
		says  string // "": it is reset
	}{
		"held":                 {func(*le.RaceEntry) {}, "held by \"rival\""},
		"held, negative hold":  {func(e *le.RaceEntry) { e.Hold = -time.Hour }, "held by \"rival\""},
		"on hold":              {func(e *le.RaceEntry) { vacant(e); e.Hold = time.Minute }, "the record is on hold until"},
		"a hold that goes on":  {func(e *le.RaceEntry) { vacant(e); e.Hold, e.TermExpiry = time.Hour, time.Now().Add(-2*T) }, "the record is on hold until"},
		"an endless hold":      {func(e *le.RaceEntry) { vacant(e); e.Hold, e.TermExpiry = math.MaxInt64, time.Now().Add(-long) }, ""},
		"reserved":             {func(e *le.RaceEntry) { vacant(e); e.Successor = "b" }, "reserved for \"b\""},
		"for any successor":    {func(e *le.RaceEntry) { vacant(e); e.Successor = le.AnySuccessor }, ""},
		"vacant":               {vacant, ""},
		"unsynchronized":       {func(e *le.RaceEntry) { e.Unsynchronized, e.TermExpiry = true, time.Now().Add(-time.Hour) }, "force it"},
		"1,000 hours":          {func(e *le.RaceEntry) { e.TermExpiry = time.Now().Add(1000 * time.Hour) }, "force it"},
		"just expired":         {func(e *le.RaceEntry) { e.TermExpiry = time.Now().Add(-T / 2) }, "force it"},
		"long expired":         {func(e *le.RaceEntry) { e.TermExpiry = time.Now().Add(-time.Hour) }, ""},
		"an endless term":      {func(e *le.RaceEntry) { e.TermLength, e.TermExpiry = math.MaxInt64, time.Now().Add(-long) }, ""},
		"of one number":        {func(e *le.RaceEntry) { vacant(e); e.ElectionNumber, e.Extension = 9, 4 }, ""},
		"the last extension":   {func(e *le.RaceEntry) { vacant(e); e.ElectionNumber, e.Extension = 9, uint64(le.MaxElectionNumber) }, "cannot be extended any more"},
		"one number before it": {func(e *le.RaceEntry) { vacant(e); e.ElectionNumber, e.Extension = 8, uint64(le.MaxElectionNumber) }, ""},
		"past all counting":    {func(e *le.RaceEntry) { vacant(e); e.ElectionNumber = math.MaxUint64 }, "force it"},
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			e := rival(7)
			e.Extra = map[string]string{"colour": "7"}
			c.spoil(e)
			d.Replace(e)
			err := le.Reset(t.Context(), d, 9, false)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("not forced: %v, want %q", err, c.says)
				}
				if c.says == "cannot be extended any more" {
					return
				}
				if !strings.Contains(err.Error(), "force it") || !errors.Is(err, le.ErrRefused) && e.ElectionNumber <= le.MaxElectionNumber {
					t.Errorf("not forced: %v", err)
				}
				err = le.Reset(t.Context(), d, 9, true)
			}
			must(t, err)
			got, on := d.Entry(), e.ElectionNumber == 9
			if !got.Vacant() || got.ElectionNumber != 9 || got.Hold != 0 || on != (got.Successor != "") || got.Incarnation == "" || on != (got.Incarnation == e.Incarnation) || !got.TermExpiry.Equal(time.Now()) {
				t.Fatalf("on record is %+v", got)
			}
			if e.ElectionNumber <= le.MaxElectionNumber && (got.Compare(e) <= 0 || got.Extra["colour"] != "7") {
				t.Errorf("on record is %+v after %+v", got, e)
			}
			a := join(t, d, "a")
			sleep(time.Second)
			if a.leads(t); a.View().ElectionNumber() != 10 {
				t.Errorf("the next leadership is %d", a.View().ElectionNumber())
			}
		})
	}
}

// A record that is not there begins with the number, and with the term that is usual. Else the term stays.
func TestResetKeepsTheTerm(t *testing.T) {
	for was, is := range map[time.Duration]time.Duration{time.Hour: time.Hour, 0: le.DefaultTermLength, -1: le.DefaultTermLength} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			if e := vacantAt(7); was >= 0 {
				e.TermLength = was
				d.Replace(e)
			}
			must(t, le.Reset(t.Context(), d, 9, false))
			if got := d.Entry(); got.ElectionNumber != 9 || got.TermLength != is || got.Extension != 0 {
				t.Errorf("of %v: on record is %+v", was, got)
			}
		})
	}
}

// From the time that a refusal names on, Reset needs no force.
func TestResetSaysUntilWhen(t *testing.T) {
	until := regexp.MustCompile(`until (\S+):`)
	for name, e := range map[string]*le.RaceEntry{
		"held":     {LeaderID: "a", ElectionNumber: 7, TermLength: T},
		"on hold":  {ElectionNumber: 7, TermLength: T, Hold: time.Minute},
		"reserved": {ElectionNumber: 7, TermLength: T, Successor: "b"},
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			e.TermExpiry = time.Now().Add(T / 2)
			d.Replace(e)
			err := le.Reset(t.Context(), d, 9, false)
			if !errors.Is(err, le.ErrRefused) || !until.MatchString(err.Error()) {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, until.FindStringSubmatch(err.Error())[1])
			must(t, err)
			sleep(time.Until(at) + time.Second)
			must(t, le.Reset(t.Context(), d, 9, false))
		})
	}
}

// A number that would have the count go back, or come to its end, is refused, force or not.
func TestResetRefusesNumbers(t *testing.T) {
	d := memory.NewDecider()
	d.Replace(&le.RaceEntry{ElectionNumber: 7, Incarnation: "x", TermExpiry: time.Now().Add(-time.Hour), TermLength: T})
	for after, want := range map[le.ElectionNumber]string{0: "fence has seen", 6: "at token 7 already", le.MaxElectionNumber: "fence has seen", math.MaxUint64: "fence has seen"} {
		if err := le.Reset(t.Context(), d, after, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("after %d: %v, want %q", after, err, want)
		}
	}
	if err := le.Reset(t.Context(), nil, 1, true); err == nil {
		t.Error("a nil decider was taken")
	}
}

// The error is permanent by itself, and its text does not depend on what a decider has put into it.
func TestDamagedRecordError(t *testing.T) {
	for _, e := range []error{&le.DamagedRecordError{}, &le.DamagedRecordError{Err: errors.New("not JSON")}} {
		if !errors.Is(e, le.ErrPermanent) || e.Error() == "" {
			t.Errorf("%v", e)
		}
	}
}

// A damaged record is replaced by force, on the condition that it is what was found.
func TestResetOfADamagedRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "election.json")
	must(t, os.WriteFile(path, []byte(`{"leaderelection":1,"leader_id":`), 0o600))
	d := file.NewDecider(path, nil)
	err := le.Reset(t.Context(), d, 41, false)
	if !errors.Is(err, le.ErrPermanent) || !strings.Contains(err.Error(), "force it") || !strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
	must(t, le.Reset(t.Context(), d, 41, true))
	if e, err := d.ReadCurrent(t.Context()); err != nil || !e.Vacant() || e.ElectionNumber != 41 {
		t.Errorf("%+v, %v", e, err)
	}
}

// Reset, and what it says.
func TestReset(t *testing.T) {
	scenes{
		"a record that changes meanwhile is judged anew": func(t *testing.T) {
			d := memory.NewDecider()
			h := d.Handle()
			h.Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Write && d.Entry().Vacant() {
					d.Replace(rival(8))
				}
				return memory.Fault{}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := le.Reset(ctx, h, 9, false); err == nil || !strings.Contains(err.Error(), `held by "rival"`) {
				t.Error(err)
			}
		},
		"the hold of a dead machine, which cannot step down": func(t *testing.T) {
			d := memory.NewDecider()
			e := rival(7)
			e.Hold = time.Hour
			d.Replace(e)
			led := le.Reset(t.Context(), d, 9, false)
			sleep(time.Until(e.TermExpiry) + time.Second)
			left := le.Reset(t.Context(), d, 9, false)
			if led == nil || !strings.Contains(led.Error(), "held by") || !strings.Contains(led.Error(), "ask the leader to step down") {
				t.Errorf("while it leads: %v", led)
			}
			if left == nil || !strings.Contains(left.Error(), "on hold by") || strings.Contains(left.Error(), "StepDown") {
				t.Errorf("when it has died: %v", left)
			}
		},
		"who knows the number leads at once": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(first))
			a := join(t, d, "a")
			sleep(time.Second)
			must(t, le.Reset(t.Context(), d.Handle(), first, true))
			must(t, le.Reset(t.Context(), d.Handle(), first, true))
			synctest.Wait()
			a.leads(t)
		},
		"nobody knows who led by an emptied record": func(t *testing.T) {
			d, a := leader(t, polled)
			d.Replace(&le.RaceEntry{})
			err := le.Reset(t.Context(), d.Handle(), 2*first, false)
			if !errors.Is(err, le.ErrRefused) || !strings.Contains(err.Error(), "emptied") || !strings.Contains(err.Error(), "force it") {
				t.Fatalf("not forced: %v", err)
			}
			a.quit()
			must(t, le.Reset(t.Context(), d.Handle(), 2*first, true))
			if e := d.Entry(); !e.Vacant() || e.ElectionNumber != 2*first {
				t.Errorf("on record is %+v", e)
			}
		},
	}.run(t)
}

// A store that fails ends it with the store's error; one that refuses each write is asked
// four times a second, until ctx ends.
func TestResetWhenTheStoreFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		writes := 0
		for kind := range map[memory.Kind]bool{memory.Read: true, memory.Write: true} {
			d.Inject(memory.Fail(memory.ErrLost).On(kind))
			if err := le.Reset(t.Context(), d, 9, true); !errors.Is(err, memory.ErrLost) {
				t.Errorf("%v fail: %v", kind, err)
			}
		}
		d.Inject(func(op memory.Op) memory.Fault {
			if op.Kind == memory.Write {
				writes++
				return memory.Fault{Err: le.ErrLostRace}
			}
			return memory.Fault{}
		})
		late := errors.New("too late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second+100*time.Millisecond, late) // between two writes
		defer cancel()
		if err := le.Reset(ctx, d, 9, true); !errors.Is(err, late) || !errors.Is(err, le.ErrLostRace) || writes > 41 {
			t.Errorf("%v, after %d writes in 10 s", err, writes)
		}
	})
	nothing := &lying{memory.NewDecider(), func(*le.RaceEntry, error) (*le.RaceEntry, error) { return nil, nil }}
	if err := le.Reset(t.Context(), nothing, 9, true); err == nil || !strings.Contains(err.Error(), "returned nil without an error") {
		t.Errorf("a store that returns nothing: %v", err)
	}
}
