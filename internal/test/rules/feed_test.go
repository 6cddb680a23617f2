//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 7: a pushed record that bears an open write of one's own is a reason to read
// at once, and the read confirms it.
func TestRule07PushedRecordIsReadAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const silent = 4 * time.Second
		_, a := leader(t)
		end := a.View().Get()
		// The next extension lands, at 7 s. Its answer is lost, and so is that of each read until the
		// back-off is long; then the feed tells of it.
		landed := false
		a.store.Inject(func(op memory.Op) memory.Fault {
			if op.Kind == memory.Feed {
				return memory.Fault{Delay: silent}
			}
			first := op.Kind == memory.Write && !landed
			landed = landed || first
			return memory.Fault{Err: memory.ErrLost, Lands: first}
		})
		sleep(6*time.Second + silent - time.Millisecond)
		if !landed || !a.View().Get().Equal(end) {
			t.Fatalf("landed %t, the view is until %v", landed, a.View().Get())
		}
		a.store.Inject(nil)
		before := time.Now()
		sleep(time.Millisecond)
		if reads := a.opsSince(before, le.OpRead); len(reads) != 1 || !reads[0].Start.Equal(time.Now()) {
			t.Fatalf("%+v, want one read at the moment of the push", reads)
		}
		if !a.View().Get().After(end) {
			t.Fatal("the read did not confirm the extension")
		}
	})
}

// sightings is what an observer under test was told.
type sightings struct {
	mu    sync.Mutex
	all   []string
	ops   []le.StoreOp
	store *memory.Decider
}

func (s *sightings) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, what)
}

func (s *sightings) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func (s *sightings) reads(since time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, op := range s.ops {
		if !op.Start.Before(since) {
			n++
		}
	}
	return n
}

// counted is n, or where that was born in the bubble the how manieth since.
func counted(n le.ElectionNumber) le.ElectionNumber {
	if n >= first {
		return n - first + 1
	}
	return n
}

// observe watches d. pause is how long each callback takes.
func observe(t *testing.T, d *memory.Decider, poll bool, pause time.Duration) *sightings {
	s := &sightings{store: d.Handle()}
	w := le.WatchConfig{MaxClockSkew: S, Decider: s.store,
		Lapsed: func(_ context.Context, e le.RaceEntry) { s.add(fmt.Sprintf("lapsed %d", counted(e.ElectionNumber))) },
		Trace: &le.Trace{StoreOp: func(op le.StoreOp) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ops = append(s.ops, op)
		}},
	}
	if poll {
		w.Decider = s.store.Polled()
	}
	watch(t, w, func(e le.RaceEntry) {
		time.Sleep(pause)
		s.add(fmt.Sprintf("%d/%d %s", counted(e.ElectionNumber), e.Extension, e.LeaderID))
	})
	synctest.Wait()
	return s
}

// What an observer is told, and what it asks.
func TestWatch(t *testing.T) {
	scenes{
		"every leadership, extension and vacancy, in order, once": func(t *testing.T) {
			d := memory.NewDecider()
			s := observe(t, d, false, 0)
			a := join(t, d, "a")
			sleep(16 * time.Second)
			a.quit()
			b := join(t, d, "b")
			sleep(time.Second)
			want := []string{"1/0 a", "1/1 a", "1/2 a", "1/3 ", "2/0 b"}
			if got := s.list(); !slices.Equal(got, want) {
				t.Fatalf("saw %q, want %q", got, want)
			}
			if n := s.reads(time.Time{}); n > 0 {
				t.Errorf("%d reads on a healthy feed", n)
			}
			b.store.Inject(memory.LoseRequests())
			sleep(T + S - time.Second - time.Millisecond)
			if got := s.list(); len(got) != 5 {
				t.Fatalf("saw %q before the term had run out", got)
			}
			sleep(spread)
			if got := s.list(); len(got) != 6 || got[5] != "lapsed 2" {
				t.Fatalf("saw %q, want the lapse", got)
			}
			if n := s.reads(time.Time{}); n != 1 {
				t.Errorf("%d reads, want the one after TermExpiry + S", n)
			}
			sleep(time.Minute)
			if got := s.list(); len(got) != 6 {
				t.Fatalf("saw %q: a lapse is told once", got)
			}
		},
		"two reads a term, if it polls": func(t *testing.T) {
			d := memory.NewDecider()
			join(t, d, "a")
			s := observe(t, d, true, 0)
			begin := time.Now()
			sleep(100 * T)
			if n := s.reads(begin); n > 210 {
				t.Errorf("%d reads in 100 terms", n)
			}
			if n := len(s.list()); n < 190 {
				t.Errorf("%d sightings of about 214 extensions", n)
			}
		},
		"a slow callback merges extensions, and misses no leadership": func(t *testing.T) {
			d := memory.NewDecider()
			s := observe(t, d, false, time.Minute)
			for range 3 {
				a := join(t, d, "a")
				sleep(40 * time.Second)
				a.quit()
				synctest.Wait() // or the feed may show the next leader's record only
			}
			sleep(10 * time.Minute)
			var kinds []string
			for _, what := range s.list() {
				var n, ext int
				var id string
				fmt.Sscanf(what, "%d/%d %s", &n, &ext, &id)
				kinds = append(kinds, fmt.Sprintf("%d%s", n, id))
			}
			if got := slices.Compact(kinds); !slices.Equal(got, []string{"1a", "1", "2a", "2", "3a", "3"}) {
				t.Fatalf("saw %q", got)
			}
			if len(kinds) >= 18 {
				t.Fatalf("%d calls: extensions were not merged", len(kinds))
			}
		},
		"nor does one that is called when five have led": func(t *testing.T) {
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
		},
		"a stuck callback keeps few records waiting": func(t *testing.T) {
			d := memory.NewDecider()
			s := observe(t, d, false, time.Hour)
			for i := range 1000 {
				e := rival(le.ElectionNumber(i + 1))
				d.Replace(e)
				synctest.Wait()
			}
			sleep(200 * time.Hour)
			got := s.list()
			if len(got) > 140 {
				t.Fatalf("%d records waited", len(got))
			}
			if last := got[len(got)-1]; last != "lapsed 1000" {
				t.Fatalf("the newest was dropped: %q", last)
			}
		},
		"it returns after its callback, and drops what waits": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(1))
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("enough")
			calls := 0
			go func() {
				time.Sleep(time.Second)
				d.Replace(rival(2))
				cancel(cause)
			}()
			var l lines
			err := le.WatchConfig{Decider: d, Logger: slog.New(slog.NewTextHandler(&l, nil))}.Watch(ctx, func(ctx context.Context, _ le.RaceEntry) {
				calls++
				time.Sleep(20 * time.Second)
			})
			if err != cause || calls != 1 {
				t.Fatalf("%v after %d calls", err, calls)
			}
			if l.count("Watch waits for it") != 1 || l.count("has ended") != 1 {
				t.Errorf("it says of its wait:\n%s", &l)
			}
		},
		"and tells nothing that comes to be known then": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(1))
			ctx, cancel := context.WithCancel(t.Context())
			calls, hang := 0, make(chan struct{})
			go func() {
				sleep(time.Second)
				d.Inject(memory.Always(memory.Fault{Hang: hang}).On(memory.Read))
				sleep(T/2 + time.Second) // a read hangs, and was not given up
				d.Replace(rival(2))
				cancel()
				sleep(time.Second)
				close(hang)
			}()
			err := le.WatchConfig{Decider: d.Polled()}.Watch(ctx, func(context.Context, le.RaceEntry) {
				calls++
				time.Sleep(T)
			})
			if !errors.Is(err, context.Canceled) || calls != 1 {
				t.Fatalf("%v after %d calls", err, calls)
			}
		},
		"a feed that falls silent in a vacancy": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(&le.RaceEntry{ElectionNumber: 2, Extension: 4, TermLength: T, TermExpiry: time.Now()})
			s := observe(t, d, false, 0)
			s.store.Inject(memory.Always(memory.Fault{Delay: time.Hour}).On(memory.Feed)) // heeds its ctx
			sleep(time.Second)
			a := join(t, d, "a")
			sleep(2 * T)
			if got := s.list(); len(got) < 2 || got[1][:2] != "3/" {
				t.Fatalf("saw %q, want the leadership that the feed withheld", got)
			}
			s.store.Inject(nil)
			sleep(10 * T)
			begin := time.Now()
			n := len(s.list())
			sleep(10 * T)
			if len(s.list())-n < 20 || s.reads(begin) > 1 {
				t.Fatalf("%d sightings and %d reads in ten terms: the feed was not started again", len(s.list())-n, s.reads(begin))
			}
			a.quit()
		},
		"a lapse by patience, in terms of the record": func(t *testing.T) {
			d := memory.NewDecider()
			e := rival(2)
			e.TermLength, e.TermExpiry = time.Second, time.Now().Add(2*time.Hour)
			d.Replace(e)
			var lapsed time.Duration
			begin := time.Now()
			w := le.WatchConfig{Decider: d.Handle(), MaxClockSkew: 100 * time.Millisecond, Lapsed: func(context.Context, le.RaceEntry) { lapsed = time.Since(begin) }}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_ = w.Watch(ctx, func(context.Context, le.RaceEntry) {})
			if lapsed < 2*time.Second || lapsed > 2*time.Second+100*time.Millisecond {
				t.Errorf("lapsed after %v, want two terms of a second", lapsed)
			}
		},
		"no lapse by a stale read": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(2))
			stale := d.Entry()
			next := stale.Clone()
			next.Extension, next.TermExpiry = 1, next.TermExpiry.Add(time.Second)
			d.Replace(next)
			var lie atomic.Bool
			lie.Store(true)
			var lapsed atomic.Int64
			reader := &lying{d.Handle(), func(e *le.RaceEntry, err error) (*le.RaceEntry, error) {
				if lie.Load() {
					return stale.Clone(), err
				}
				return e, err
			}}
			feed := struct {
				*lying
				le.ChangeFeed
			}{reader, d.Handle()}
			watch(t, le.WatchConfig{Decider: feed, MaxClockSkew: S, Lapsed: func(context.Context, le.RaceEntry) { lapsed.Add(1) }})
			sleep(2 * T)
			if lapsed.Load() != 0 {
				t.Fatal("lapsed by a read that returned an older record")
			}
			lie.Store(false)
			sleep(T)
			if lapsed.Load() != 1 {
				t.Fatalf("lapsed %d times once the read was true", lapsed.Load())
			}
		},
		"nor by a read that began before the end of the term": func(t *testing.T) {
			d := memory.NewDecider()
			held := rival(3)
			d.Replace(held)
			s := observe(t, d, true, 0)
			s.store.Inject(memory.Always(memory.Fault{AnswerDelay: 2 * time.Second}).On(memory.Read))
			sleep(15500 * time.Millisecond) // a read is on its way back since 15 s
			held.Extension, held.TermExpiry = 1, time.Now().Add(T)
			d.Replace(held)
			sleep(5 * time.Second)
			for _, what := range s.list() {
				if what == "lapsed 3" {
					t.Errorf("told of a lapse of what was extended: %q", s.list())
				}
			}
		},
		"a lapse, though the leadership comes back while the callback is busy": func(t *testing.T) {
			d := memory.NewDecider()
			held := rival(3)
			d.Replace(held)
			s := observe(t, d, false, 20*time.Second) // busy with 3/0 until 20 s; the lapse is at 16 s
			sleep(18 * time.Second)
			held.Extension, held.TermExpiry = 1, time.Now().Add(T)
			d.Replace(held)
			sleep(25 * time.Second)
			if got := s.list(); len(got) < 3 || got[0] != "3/0 rival" || got[1] != "lapsed 3" || got[2] != "3/1 rival" {
				t.Errorf("told %q", got)
			}
		},
	}.run(t)
}

// Transient errors never end Watch; a permanent one only at the very start.
func TestWatchErrors(t *testing.T) {
	for _, poll := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a")
			s := observe(t, d, poll, 0)
			synctest.Wait()
			s.store.Inject(memory.Fail(fmt.Errorf("denied: %w", le.ErrPermanent)))
			sleep(time.Hour)
			s.store.Inject(nil)
			sleep(2 * time.Minute)
			n := len(s.list())
			sleep(time.Minute)
			if len(s.list()) == n {
				t.Fatal("Watch did not come back")
			}
			a.quit()
		})
		d := memory.NewDecider()
		d.Inject(memory.Fail(fmt.Errorf("no such bucket: %w", le.ErrPermanent)))
		w := le.WatchConfig{Decider: d}
		if poll {
			w.Decider = d.Polled()
		}
		if err := w.Watch(t.Context(), func(context.Context, le.RaceEntry) {}); !errors.Is(err, le.ErrPermanent) {
			t.Fatalf("poll %v: %v, want ErrPermanent", poll, err)
		}
	}
}

// A MaxClockSkew beyond all sense is taken for a year: no sum of times overflows, so nothing lapses
// before its time, and a store whose feed is well is not asked without end.
func TestWatchHugeSkew(t *testing.T) {
	for name, how := range map[string]func(*config){"clocks": func(*config) {}, "unsynchronized": func(c *config) { c.ClockPolicy = le.Unsynchronized }} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			join(t, d, "a", how)
			observer := d.Handle()
			reads := 0
			observer.Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Read {
					reads++
				}
				return memory.Fault{Delay: time.Millisecond}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*T)
			defer cancel()
			w := le.WatchConfig{Decider: observer, MaxClockSkew: math.MaxInt64, Lapsed: func(_ context.Context, e le.RaceEntry) { t.Errorf("%+v has lapsed", e) }}
			_ = w.Watch(ctx, func(context.Context, le.RaceEntry) {})
			if reads > 1 {
				t.Errorf("%d reads in ten terms", reads)
			}
		})
	}
}
