//go:build go1.25

package rules

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 14: every write raises (ElectionNumber, Extension); a new leadership starts
// Extension at 0; no two records are alike.
func TestRule14EveryWriteRaisesTheOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		var written []le.RaceEntry
		observer := d.Handle()
		observer.Inject(func(op memory.Op) memory.Fault {
			if op.Kind == memory.Feed {
				written = append(written, *op.Entry)
			}
			return memory.Fault{}
		})
		stop := watch(t, le.WatchConfig{Decider: observer})
		a, b := join(t, d, "a"), join(t, d, "b")
		sleep(30 * time.Second)
		must(t, le.Transfer(t.Context(), d, "b"))
		sleep(30 * time.Second)
		must(t, le.StepDown(t.Context(), d, false))
		sleep(30 * time.Second)
		a.quit()
		synctest.Wait() // a feed may merge a leadership's beginning with its end
		b.quit()
		stop()
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

// spoiler is a decider that breaks the contract on who owns an entry: it writes over what WriteEntry was
// given, and in settle over all that it has returned.
type spoiler struct {
	*memory.Decider
	given chan *le.RaceEntry
}

func spoil(e *le.RaceEntry) { *e = le.RaceEntry{ElectionNumber: e.ElectionNumber, Token: e.Token} }

func (s spoiler) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := s.Decider.ReadCurrent(ctx)
	s.given <- e
	return e, err
}

func (s spoiler) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	token, err := s.Decider.WriteEntry(ctx, e)
	if spoil(e); errors.Is(err, le.ErrLostRace) {
		current := s.Entry()
		s.given <- current
		return nil, &le.LostRaceError{Current: current}
	}
	return token, err
}

func (s spoiler) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		for e, err := range s.Decider.Changes(ctx) {
			if !yield(e, err) {
				return
			}
			spoil(e)
		}
	}
}

// settle sleeps, and spoils what was returned.
func (s spoiler) settle(d time.Duration) {
	for range d / (100 * time.Millisecond) {
		for sleep(100 * time.Millisecond); len(s.given) > 0; {
			spoil(<-s.given)
		}
	}
}

// Rule 14: a record that the campaign has taken in changes no more, whatever the decider does with it.
func TestRule14EntriesAreCopied(t *testing.T) {
	for kind := range styles {
		scene(t, kind, func(t *testing.T) {
			s := spoiler{memory.NewDecider(), make(chan *le.RaceEntry, 100)}
			spoiled := func(c *config) {
				if c.Decider = s; kind == "polled" {
					c.Decider = struct{ le.RaceDecider }{s}
				}
			}
			a, b := join(t, s.Decider, "a", spoiled), join(t, s.Decider, "b", spoiled)
			for n := 1; n <= 5; n++ {
				if s.settle(time.Minute); a.count()+b.count() != n {
					t.Fatalf("%d and %d leaderships, want %d", a.count(), b.count(), n)
				}
				s.Replace(rival(s.Entry().ElectionNumber + 1))
				if s.settle(T); s.Entry().LeaderID != "rival" {
					t.Fatal("a living leader's record was written over")
				}
			}
		})
	}
}

// lying is a decider whose reads return what the test wants.
type lying struct {
	le.RaceDecider
	read func(*le.RaceEntry, error) (*le.RaceEntry, error)
}

func (l *lying) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	return l.read(l.RaceDecider.ReadCurrent(ctx))
}

// Rule 7: a lost answer costs nothing while there is time: the record shows that
// the write happened, and the view moves to that very write's end. Nor does an ErrLostRace oust anybody that a
// client's own retry of a landed write earns.
func TestRule07LostAnswerIsReadBack(t *testing.T) {
	for _, answer := range []error{memory.ErrLost, le.ErrLostRace} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a")
			synctest.Wait()
			a.store.Inject(memory.Always(memory.Fault{Err: answer, Lands: true}).On(memory.Write))
			sleep(5 * time.Minute)
			a.leads(t)
			if a.count() != 1 {
				t.Fatalf("%v: %d leaderships, want one that goes on", answer, a.count())
			}
			if want := d.Entry().TermExpiry.Add(-S); !a.View().Get().Equal(want) {
				t.Fatalf("%v: view until %v, the record allows %v", answer, a.View().Get(), want)
			}
		})
	}
}

// Rule 8: a newer record of another Incarnation, pushed or read, ends view and
// ctx at once with ErrOusted.
func TestRule08LossEndsViewAndCtxAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, a := leader(t)
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
		d, a := leader(t, polled)
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
		must(t, le.Transfer(t.Context(), d, "b"))
		check("request", d.Entry().Successor == "b")
	})
}

// TestEmptiedRecordIsWaitedFor: a record that is empty and not new is nobody's for a term.
// One that is not there may be new.
func TestEmptiedRecordIsWaitedFor(t *testing.T) {
	for kind, adjust := range styles {
		scene(t, kind, func(t *testing.T) {
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
	}
}

// What is announced.
func TestAnnounce(t *testing.T) {
	scenes{
		"is on record at once, by one extension more": func(t *testing.T) {
			d := memory.NewDecider()
			host, params := []string{"old:1"}, []byte("v1") // they are the caller's when Start has returned
			a := join(t, d, "a", func(c *config) { c.HostPort, c.ConnectionParams = host, params })
			host[0], params[0] = "scribbled", 'x'
			sleep(8 * time.Second) // the first extension was at 7 s
			if e := d.Entry(); !slices.Equal(e.HostPort, []string{"old:1"}) || string(e.ConnectionParams) != "v1" {
				t.Errorf("on record is %+v", e)
			}
			began := time.Now()
			sleep(2 * time.Second)
			host, params = []string{"new:1"}, []byte("v2")
			must(t, a.Announce(host, params))
			host[0], params[0] = "scribbled", 'x' // so are these
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
		},
		"at most once a second, the newest": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a")
			sleep(2 * time.Second)
			began := time.Now()
			for i := range 1000 {
				must(t, a.Announce(nil, []byte{byte(i), byte(i >> 8)}))
				sleep(4 * time.Millisecond)
			}
			sleep(2 * time.Second)
			if n := len(a.opsSince(began)); n > 6 {
				t.Errorf("%d store operations in 6 s", n)
			}
			if p := d.Entry().ConnectionParams; !slices.Equal(p, []byte{999 & 255, 999 >> 8}) {
				t.Errorf("on record is %v", p)
			}
		},
		"no more often than extensions, if the store fails": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a")
			sleep(2 * time.Second)
			a.store.Inject(memory.Fail(errors.New("no")).On(memory.Write))
			began := time.Now()
			must(t, a.Announce([]string{"new:1"}, nil))
			sleep(4 * time.Second)
			if n := len(a.opsSince(began, le.OpExtend)); n > 6 {
				t.Errorf("%d writes in 4 s, want at most 6: the pauses double from half a second", n)
			}
		},
		"by a standby is told when it leads": func(t *testing.T) {
			d, a := leader(t, func(c *config) { c.HostPort = []string{"a:1"} })
			b := join(t, d, "b", func(c *config) { c.HostPort = []string{"b:1"} })
			sleep(time.Second)
			must(t, b.Announce([]string{"b:2"}, nil))
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
		},
		"is refused as by Config, and is nothing when all is over": func(t *testing.T) {
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
			must(t, a.Announce(nil, nil))
		},
		"as much as a record keeps, each byte written as six": func(t *testing.T) {
			a := join(t, memory.NewDecider(), "a")
			for n, fits := range map[int]bool{(192<<10)/6 - 2: true, (192<<10)/6 - 1: false} {
				if err := a.Announce([]string{strings.Repeat("\x01", n) + ":1"}, nil); (err == nil) != fits {
					t.Errorf("%d bytes: %v", n, err)
				}
			}
		},
		"puts no extension off": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", func(c *config) { c.ExtendEvery = T / 20 })
			sleep(10 * time.Second)
			began := time.Now()
			must(t, a.Announce([]string{"new:1"}, nil))
			sleep(600 * time.Millisecond) // the last extension was 250 ms before
			if ops := a.opsSince(began, le.OpExtend); len(ops) != 1 || !slices.Equal(d.Entry().HostPort, []string{"new:1"}) {
				t.Errorf("%+v, on record is %v", ops, d.Entry().HostPort)
			}
		},
		"either of the two": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", func(c *config) { c.HostPort, c.ConnectionParams = []string{"a:1"}, []byte("v1") })
			for _, c := range []struct{ host, params string }{{"a:1", "v2"}, {"a:2", "v2"}} {
				sleep(2 * time.Second)
				must(t, a.Announce([]string{c.host}, []byte(c.params)))
				synctest.Wait()
				if e := d.Entry(); e.HostPort[0] != c.host || string(e.ConnectionParams) != c.params {
					t.Errorf("on record are %v and %q, want %+v", e.HostPort, e.ConnectionParams, c)
				}
			}
		},
	}.run(t)
}
