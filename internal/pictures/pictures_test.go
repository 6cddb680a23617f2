//go:build go1.25

package pictures

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

var update = flag.Bool("update", false, "draw the pictures anew")

const (
	term    = 15 * time.Second
	skew    = time.Second
	cut     = 17 * time.Second // when something happens to the leader
	length  = 40 * time.Second
	between = 10 * time.Millisecond // of two looks at the views
)

// seen is what a candidate's views were.
type seen struct {
	from, to time.Duration
	token    leaderelection.ElectionNumber
}

// history is what became of an election of two candidates, whose first leader comes to an end.
type history struct {
	end    end
	views  [2][]seen
	expiry time.Duration // of the last term of the first leader, in true time: as its clock has it
	writes []time.Duration
}

// end is what happens to the first leader.
type end string

const (
	isCutOff end = "cut off" // from the store
	stops    end = "stops"   // in order
	dies     end = "kill -9" // with a lifeline, and the other candidate is on its machine
)

// machine is what the kernel knows of its processes' lifelines: the first candidate's life.
type machine struct {
	name string
	dead atomic.Bool
	tell func()
}

func (m *machine) Live(name string) error {
	if m.name == "" {
		m.name = name
	}
	return nil
}
func (m *machine) End(string) error      { return nil }
func (m *machine) Dead(name string) bool { return name == m.name && m.dead.Load() }
func (m *machine) Bury(string) error     { return nil }

func (m *machine) OnDeath(name string, tell func()) (stop func()) {
	if name == m.name {
		m.tell = tell
	}
	return func() {}
}

// unstamped hides when the store says that it wrote: its clock is compared with nobody's. What is cut off hangs.
type unstamped struct {
	leaderelection.RaceDecider
	cut   *atomic.Bool
	wrote func(*leaderelection.RaceEntry)
}

type token struct{ leaderelection.LeaderToken }

func (token) CommitTS() time.Time { return time.Time{} }

func (u unstamped) hang(ctx context.Context) error {
	if !u.cut.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (u unstamped) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	if err := u.hang(ctx); err != nil {
		return nil, err
	}
	e, err := u.RaceDecider.ReadCurrent(ctx)
	if err == nil && e.Token != nil {
		e.Token = token{e.Token}
	}
	return e, err
}

func (u unstamped) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if err := u.hang(ctx); err != nil {
		return nil, err
	}
	e = e.Clone()
	if t, ok := e.Token.(token); ok {
		e.Token = t.LeaderToken
	}
	next, err := u.RaceDecider.WriteEntry(ctx, e)
	if err != nil {
		return nil, err
	}
	u.wrote(e)
	return token{next}, nil
}

// hold holds the election: the first candidate leads, and comes to an end. Their clocks are
// off by what is given.
func hold(t *testing.T, end end, offsets [2]time.Duration) (h history) {
	h.end = end
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		record := memory.NewDecider()
		var current [2]atomic.Pointer[leaderelection.TimeView]
		var off atomic.Bool
		var first context.CancelFunc
		kernel := new(machine)
		for i, offset := range offsets {
			d := unstamped{record, new(atomic.Bool), func(e *leaderelection.RaceEntry) {
				if i == 0 {
					h.writes = append(h.writes, time.Since(begin))
					h.expiry = e.TermExpiry.Sub(begin)
				}
			}}
			if i == 0 {
				d.cut = &off
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i == 0 {
				first = cancel
			}
			config := leaderelection.Config{
				Decider: d, LeaderID: string(rune('A' + i)), TermLength: term, MaxClockSkew: skew, PollInterval: 250 * time.Millisecond,
				Clock:     clocks.NewOffset(nil, offset),
				OnElected: func(_ context.Context, view *leaderelection.TimeView) { current[i].Store(view) },
			}
			if end == dies {
				config.Lifeline = kernel
			}
			c, err := config.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Wait() })
			synctest.Wait() // the first is first
			time.Sleep(time.Millisecond)
		}
		for time.Since(begin) < length {
			at := time.Since(begin)
			over := at >= cut
			switch off.Store(end != stops && over && at < length-time.Second); {
			case end == stops && over:
				first()
			case end == dies && over && !kernel.dead.Load():
				current[0].Store(nil) // nobody is left to look at it
				kernel.dead.Store(true)
				kernel.tell()
			}
			for i := range current {
				v := current[i].Load()
				if v == nil || !v.ValueInFuture() {
					continue
				}
				all := h.views[i]
				if n := len(all); n > 0 && all[n-1].token == v.ElectionNumber() {
					all[n-1].to = at
				} else {
					h.views[i] = append(all, seen{at, at, v.ElectionNumber()})
				}
			}
			time.Sleep(between)
		}
		off.Store(false)
	})
	return h
}

// draw is the picture of a history.
func (h history) draw(title, caption string, notes [2]string) picture {
	a, b := h.views[0][0], h.views[1][0]
	lease := lane{name: "the record", note: "TermExpiry, in true time"}
	for _, w := range h.writes {
		lease.marks = append(lease.marks, mark{w, "write"})
	}
	lease.spans = []span{{0, h.expiry, "wait", "A's lease"}}
	one := lane{name: "A", note: notes[0], spans: []span{{a.from, a.to, "view", "A's view"}}, marks: []mark{{cut, string(h.end)}}}
	two := lane{name: "B", note: notes[1]}
	if h.end != isCutOff { // the record is not A's any more when B leads
		lease.note = "whose it is"
		lease.spans = []span{{0, b.from, "wait", "A's lease"}, {b.from, b.to, "wait", "B's lease"}}
		if h.end == stops {
			lease.spans[0].to = a.to // it is vacant from then on
		}
		two.spans = []span{{0, b.from, "wait", "waits"}, {b.from, b.to, "view", "B's view"}}
		return picture{title, caption, length, []lane{lease, one, two}}
	}
	if a.to < h.expiry {
		one.spans = append(one.spans, span{a.to, h.expiry, "margin", "S"})
	}
	switch {
	case b.from < a.to:
		two.spans = []span{{0, b.from, "wait", "waits"}, {b.from, a.to, "overlap", "both"}, {a.to, b.to, "view", "B's view"}}
	case h.expiry < b.from-100*time.Millisecond:
		two.spans = []span{{0, h.expiry, "wait", "waits"}, {h.expiry, b.from, "margin", "S"}, {b.from, b.to, "view", "B's view"}}
	default:
		two.spans = []span{{0, b.from, "wait", "waits"}, {b.from, b.to, "view", "B's view"}}
	}
	return picture{title, caption, length, []lane{lease, one, two}}
}

func TestPictures(t *testing.T) {
	for _, c := range []struct {
		file, title, caption string
		end                  end
		offsets              [2]time.Duration
		notes                [2]string
		overlap, gap         time.Duration // what must be, to a poll's length
	}{
		{"crash.svg", "A leader that is cut off", "TermLength 15 s, MaxClockSkew (S) 1 s, clocks right. B leads 2 S after A's view has ended.", isCutOff,
			[2]time.Duration{}, [2]string{"clock right", "clock right"}, 0, 2 * skew},
		{"skew.svg", "The worst that clocks may be", "A's clock is S behind, B's is S ahead: the two margins are used up, and the views still do not overlap.", isCutOff,
			[2]time.Duration{-skew, skew}, [2]string{"clock 1 s behind", "clock 1 s ahead"}, 0, 0},
		{"beyond.svg", "Clocks beyond MaxClockSkew", "A's clock is 4 S behind, on a store that stamps nothing, so nobody can notice: two views at once. It is what fencing is for.", isCutOff,
			[2]time.Duration{-4 * skew, skew}, [2]string{"clock 4 s behind", "clock 1 s ahead"}, 3 * skew, 0},
		{"handover.svg", "A leader that stops", "TermLength 15 s. A's view ends first, then A releases the record, and B leads from its next poll on: within 250 ms here.", stops,
			[2]time.Duration{}, [2]string{"clock right", "clock right"}, 0, 0},
		{"lifeline.svg", "A leader's process that dies, with a lifeline", "TermLength 15 s. B is on the same machine. Its kernel proves A's death, so B does not wait for the rest of A's term.", dies,
			[2]time.Duration{}, [2]string{"with a lifeline", "with a lifeline"}, 0, 0},
	} {
		h := hold(t, c.end, c.offsets)
		a, b := h.views[0][0], h.views[1][0]
		if over := a.to - b.from; c.overlap > 0 && (over < c.overlap-300*time.Millisecond || over > c.overlap) || c.overlap == 0 && over >= 0 {
			t.Errorf("%s: the views overlap by %v, want %v", c.file, over, c.overlap)
		}
		if gap := b.from - a.to; c.overlap == 0 && (gap < c.gap || gap > c.gap+300*time.Millisecond) {
			t.Errorf("%s: nobody leads for %v, want %v", c.file, gap, c.gap)
		}
		got := h.draw(c.title, c.caption, c.notes).svg()
		file := filepath.Join("..", "..", "docs", "pictures", c.file)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != got {
			t.Errorf("%s is not what the code does (%v): go test ./internal/pictures -update, and look at it", file, err)
		}
	}
}
