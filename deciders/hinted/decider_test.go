//go:build go1.25

package hinted_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/hinted"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		poll  time.Duration
		hints func(s *hinted.Signal) hinted.Hints
	}{
		"hints":           {time.Hour, func(s *hinted.Signal) hinted.Hints { return s.Hints }},
		"every hint lost": {10 * time.Millisecond, func(*hinted.Signal) hinted.Hints { return silent }},
	} {
		t.Run(name, func(t *testing.T) {
			decidertest.Run(t, func(testing.TB) func() leaderelection.RaceDecider {
				var signal hinted.Signal
				election := memory.NewDecider()
				return func() leaderelection.RaceDecider {
					return hinted.NewDecider(election.Handle().Polled(), c.hints(&signal), &hinted.Options{
						PollInterval: c.poll, MinInterval: time.Millisecond,
						Announce: func(context.Context) { signal.Changed() },
					})
				}
			}, nil)
		})
	}
}

func TestBadInputs(t *testing.T) {
	feedtest.Refuses(t, hinted.NewDecider(nil, silent, nil), "decider")
	feedtest.Refuses(t, hinted.NewDecider(memory.NewDecider(), nil, nil), "hints")
	for _, o := range []hinted.Options{{PollInterval: 10}, {MinInterval: 10}} { // a bare number counts nanoseconds: nobody means so few
		feedtest.Refuses(t, hinted.NewDecider(memory.NewDecider(), silent, &o), "nanoseconds")
	}
}

// What may have happened is announced, and what has not is not.
func TestAnnounce(t *testing.T) {
	announced := 0
	m := memory.NewDecider()
	d := hinted.NewDecider(m, silent, &hinted.Options{Announce: func(context.Context) { announced++ }})
	e := entry(1, 0)
	for _, c := range []struct {
		what   string
		fault  memory.Faults
		more   int
		change func()
	}{
		{"a write", nil, 1, func() {}},
		{"a lost race", nil, 0, func() { e.Token = nil }},
		{"a refusal for good", memory.Fail(leaderelection.ErrPermanent), 0, func() {}},
		{"a lost answer", memory.LoseAnswers(), 1, func() { e.Token = m.Entry().Token }},
		{"a lost request", memory.LoseRequests(), 1, func() { e.Token = m.Entry().Token }},
	} {
		c.change()
		m.Inject(c.fault)
		before := announced
		if _, err := d.WriteEntry(t.Context(), e); (err == nil) != (c.what == "a write") {
			t.Fatalf("%s: %v", c.what, err)
		}
		if announced-before != c.more {
			t.Errorf("%s is announced %d times, want %d", c.what, announced-before, c.more)
		}
	}
}

// A publisher that is stuck holds up one write for a moment, and no other; when it is
// free again, all that has been written is one more announcement.
func TestAnnounceIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		announced := 0
		stuck := make(chan struct{})
		d := hinted.NewDecider(memory.NewDecider(), silent, &hinted.Options{Announce: func(ctx context.Context) {
			announced++
			<-stuck
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Second {
				t.Errorf("its ctx ends at %v", deadline)
			}
		}})
		e := entry(1, 0)
		for i := range 100 {
			begin := time.Now()
			token, err := d.WriteEntry(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			e.Token = token
			e.Extension++
			if took := time.Since(begin); took > 100*time.Millisecond || i > 0 && took != 0 {
				t.Errorf("write %d took %v", i, took)
			}
		}
		close(stuck)
		synctest.Wait()
		if announced != 2 {
			t.Errorf("%d announcements, want 2", announced)
		}
	})
}

// Each feed hears of each change; one that has ended hears of none.
func TestSignalTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var signal hinted.Signal
		signal.Changed() // nobody listens
		heard := make([]int, 3)
		var stop [3]context.CancelFunc
		for i := range heard {
			ctx, cancel := context.WithCancel(t.Context())
			stop[i] = cancel
			go func() {
				if err := signal.Hints(ctx, func() { heard[i]++ }); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		signal.Changed()
		stop[1]()
		synctest.Wait()
		signal.Changed()
		for i, want := range []int{3, 2, 3} { // one when it begins to listen
			if heard[i] != want {
				t.Errorf("listener %d heard %d hints, want %d", i, heard[i], want)
			}
		}
		stop[0]()
		stop[2]()
	})
}

// Close closes the decider that Open has returned, too.
func TestClose(t *testing.T) {
	closed := 0
	d := hinted.NewDecider(&closing{memory.NewDecider(), &closed}, func(context.Context, func()) error { return nil }, nil)
	if err := open.Close(d); err != nil || closed != 1 {
		t.Errorf("%v, closed %d times", err, closed)
	}
	if err := hinted.NewDecider(memory.NewDecider(), nil, nil).Close(); err != nil {
		t.Error(err)
	}
}

type closing struct {
	leaderelection.RaceDecider
	times *int
}

func (c *closing) Close() error { *c.times++; return nil }

// counting is a store that polls, and how often it was read.
type counting struct {
	leaderelection.RaceDecider
	reads atomic.Int64
}

func (c *counting) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	c.reads.Add(1)
	return c.RaceDecider.ReadCurrent(ctx)
}

// bubble is a feed in virtual time, over an election and a source that a test hints by.
type bubble struct {
	t      *testing.T
	store  *memory.Decider
	reads  *counting
	signal *hinted.Signal
	feed   <-chan news
	cancel context.CancelFunc
}

// inBubble runs f in a bubble with a feed that has yielded the empty election.
func inBubble(t *testing.T, opts hinted.Options, f func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewDecider()
		b := &bubble{t: t, store: m, reads: &counting{RaceDecider: m.Polled()}, signal: new(hinted.Signal)}
		ctx, cancel := context.WithCancel(t.Context())
		b.feed, b.cancel = follow(ctx, hinted.NewDecider(b.reads, b.signal.Hints, &opts)), cancel
		if n := <-b.feed; n.err != nil || n.ElectionNumber != 0 {
			t.Fatalf("the feed begins with %+v", n)
		}
		synctest.Wait()
		b.reads.reads.Store(0)
		f(b)
		cancel()
		for n := range b.feed {
			if n.err != nil {
				t.Errorf("the feed fails: %v", n.err)
			}
		}
	})
}

// hear fails the test if the feed does not yield this record, so long after since.
func (b *bubble) hear(want *leaderelection.RaceEntry, since time.Time, least, most time.Duration) {
	b.t.Helper()
	n := <-b.feed
	if n.err != nil || n.Compare(want) != 0 {
		b.t.Fatalf("the feed yields %+v, want %d.%d", n, want.ElectionNumber, want.Extension)
	}
	if late := n.at.Sub(since); late < least || late > most {
		b.t.Errorf("%d.%d came after %v, want %v to %v", want.ElectionNumber, want.Extension, late, least, most)
	}
}

// A hint is answered by one read, at once, if that shows news.
func TestHintIsOneRead(t *testing.T) {
	inBubble(t, hinted.Options{PollInterval: time.Hour}, func(b *bubble) {
		time.Sleep(time.Minute) // with the hint that a Signal begins with
		b.reads.reads.Store(0)
		for i := range uint64(10) {
			time.Sleep(10 * time.Second)
			e := entry(1, i)
			b.store.Replace(e)
			b.signal.Changed()
			b.hear(e, time.Now(), 0, 0)
		}
		if n := b.reads.reads.Load(); n != 10 {
			b.t.Errorf("%d reads for 10 hints", n)
		}
	})
}

// News whose hint is lost comes with the poll: half the term that the record names, or
// what the options say, after the last read.
func TestLostHint(t *testing.T) {
	for poll, want := range map[time.Duration]time.Duration{0: 7500 * time.Millisecond, 3 * time.Second: 3 * time.Second} {
		inBubble(t, hinted.Options{PollInterval: poll}, func(b *bubble) {
			e := entry(1, 0)
			b.store.Replace(e)
			b.hear(e, time.Now(), 0, want)
			read := time.Now()
			for i := range uint64(10) {
				time.Sleep(time.Duration(i) * time.Second / 4)
				written := time.Now()
				e := entry(2, i)
				b.store.Replace(e)
				b.hear(e, read, want, want)
				if late := time.Since(written); late > want {
					b.t.Errorf("late by %v", late)
				}
				read = time.Now()
			}
		})
	}
	// An empty election and a record without a term, as somebody may write by hand.
	inBubble(t, hinted.Options{}, func(b *bubble) {
		e := &leaderelection.RaceEntry{ElectionNumber: 1}
		b.store.Replace(e)
		b.hear(e, time.Now(), time.Second, 7500*time.Millisecond)
		e = &leaderelection.RaceEntry{ElectionNumber: 2}
		b.store.Replace(e)
		b.hear(e, time.Now(), 7500*time.Millisecond, 7500*time.Millisecond)
	})
}

// While hints come nobody polls: each that has no news is two reads.
func TestHintPutsOffPoll(t *testing.T) {
	inBubble(t, hinted.Options{PollInterval: 5 * time.Second}, func(b *bubble) {
		for range 100 {
			time.Sleep(4 * time.Second)
			b.signal.Changed()
			synctest.Wait()
		}
		if n := b.reads.reads.Load(); n != 200 {
			b.t.Errorf("%d reads for 100 hints that have no news", n)
		}
	})
}

// In a storm the reads are bounded, and news is late by the interval between them.
func TestStorm(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{0: time.Second, 250 * time.Millisecond: 250 * time.Millisecond} {
		inBubble(t, hinted.Options{PollInterval: time.Hour, MinInterval: interval}, func(b *bubble) {
			const lasts = time.Minute
			begin := time.Now()
			var written []time.Time
			for time.Since(begin) < lasts {
				b.store.Replace(entry(1, uint64(len(written))))
				written = append(written, time.Now())
				for range 700 {
					b.signal.Changed()
					time.Sleep(time.Millisecond)
				}
			}
			n, most := b.reads.reads.Load(), int64(lasts/want)+4
			if n > most || n < most-5 {
				b.t.Errorf("%d reads in a storm of %v, want %d", n, lasts, most)
			}
			time.Sleep(time.Minute)
			for told := 0; told < len(written); {
				n := <-b.feed
				for ; told <= int(n.Extension); told++ {
					if late := n.at.Sub(written[told]); late > want {
						b.t.Errorf("record %d was told after %v", told, late)
					}
				}
			}
			// After it, all is as before.
			e := entry(2, 0)
			b.store.Replace(e)
			b.signal.Changed()
			b.hear(e, time.Now(), 0, 0)
		})
	}
}

// However many hints come while a read is under way, they are answered by one more; and
// what was written after the first read had its answer is in that one.
func TestHintsDuringRead(t *testing.T) {
	inBubble(t, hinted.Options{PollInterval: time.Hour}, func(b *bubble) {
		b.store.Inject(memory.Always(memory.Fault{AnswerDelay: time.Second}))
		b.store.Replace(entry(1, 0))
		b.signal.Changed()
		time.Sleep(time.Second / 2)
		e := entry(1, 1)
		b.store.Replace(e)
		for range 100 {
			b.signal.Changed()
		}
		b.hear(entry(1, 0), time.Now(), time.Second/2, time.Second/2)
		b.hear(e, time.Now(), time.Second, time.Second)
		time.Sleep(time.Minute)
		if n := b.reads.reads.Load(); n != 2 {
			b.t.Errorf("%d reads", n)
		}
	})
}

// Neither the same record again, nor an older one, is news.
func TestOnlyNewsIsYielded(t *testing.T) {
	inBubble(t, hinted.Options{}, func(b *bubble) {
		for _, e := range []*leaderelection.RaceEntry{entry(2, 5), entry(2, 5), entry(2, 4), nil, entry(1, 9)} {
			b.store.Replace(e)
			b.signal.Changed()
			time.Sleep(time.Minute)
		}
		e := entry(3, 0)
		b.store.Replace(e)
		b.signal.Changed()
		b.hear(entry(2, 5), time.Now(), -time.Hour, 0)
		b.hear(e, time.Now(), -time.Hour, 0)
	})
}

// A source that fails or ends fails the feed, as does a store.
func TestFeedFails(t *testing.T) {
	broken := errors.New("broken")
	for what, c := range map[string]struct {
		hints hinted.Hints
		fault memory.Faults
		after time.Duration
		want  error
		says  string
	}{
		"source fails":          {func(context.Context, func()) error { return broken }, nil, 0, broken, "hints"},
		"source fails for good": {func(context.Context, func()) error { return leaderelection.ErrPermanent }, nil, 0, leaderelection.ErrPermanent, "hints"},
		"source fails later":    {func(ctx context.Context, _ func()) error { time.Sleep(time.Minute); return broken }, nil, time.Minute, broken, "hints"},
		"source ends":           {func(context.Context, func()) error { return nil }, nil, 0, nil, "before its ctx ended"},
		"read fails":            {silent, memory.Fail(broken), 0, broken, "read"},
		"read fails for good":   {silent, memory.Fail(leaderelection.ErrPermanent), 0, leaderelection.ErrPermanent, "read"},
		"store is silent":       {silent, memory.Slow(time.Hour), 7500 * time.Millisecond, context.DeadlineExceeded, "no answer within 7.5s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := memory.NewDecider()
			m.Inject(c.fault)
			begin := time.Now()
			var last news
			for n := range follow(t.Context(), hinted.NewDecider(m, c.hints, nil)) {
				if last.err != nil {
					t.Errorf("%s: the feed goes on with %+v", what, n)
				}
				last = n
			}
			switch {
			case last.err == nil || last.RaceEntry != nil:
				t.Errorf("%s: the feed ends with %+v", what, last)
			case c.want != nil && !errors.Is(last.err, c.want), !strings.Contains(last.err.Error(), c.says):
				t.Errorf("%s: %v", what, last.err)
			case last.at.Sub(begin) != c.after:
				t.Errorf("%s: after %v, want %v", what, last.at.Sub(begin), c.after)
			}
		})
	}
}

// A feed ends soon after its ctx, whatever the source is about, and takes the source
// along where that obeys.
func TestFeedEnds(t *testing.T) {
	release := make(chan struct{})
	for what, c := range map[string]struct {
		hints hinted.Hints
		most  time.Duration
	}{
		"source obeys":         {silent, 0},
		"source says why":      {func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }, 0},
		"source takes a while": {func(ctx context.Context, _ func()) error { <-ctx.Done(); time.Sleep(time.Second / 2); return nil }, time.Second / 2},
		"source does not obey": {func(ctx context.Context, changed func()) error { <-release; changed(); return nil }, time.Second},
		"hints go on": {func(ctx context.Context, changed func()) error {
			for ctx.Err() == nil {
				changed()
				time.Sleep(time.Millisecond)
			}
			return nil
		}, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			release = make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			feed := follow(ctx, hinted.NewDecider(memory.NewDecider(), c.hints, nil))
			<-feed
			time.Sleep(10 * time.Second)
			cancel()
			begin := time.Now()
			for n := range feed {
				t.Errorf("%s: the feed yields %+v", what, n)
			}
			if took := time.Since(begin); took > c.most {
				t.Errorf("%s: it took %v", what, took)
			}
			close(release)
		})
	}
}

// A read may lag behind the write that was hinted at: one that shows nothing new is followed
// by another.
func TestReadLagsBehindHint(t *testing.T) {
	inBubble(t, hinted.Options{PollInterval: time.Hour, MinInterval: 2 * time.Second}, func(b *bubble) {
		time.Sleep(time.Minute)
		b.reads.reads.Store(0)
		since := time.Now()
		b.signal.Changed() // of a write that reads do not show yet
		time.Sleep(time.Second)
		e := entry(1, 1)
		b.store.Replace(e)
		b.hear(e, since, 2*time.Second, 2*time.Second)
		b.signal.Changed()
		time.Sleep(time.Minute)
		if n := b.reads.reads.Load(); n != 4 {
			t.Errorf("%d reads for two hints of which each had one that showed nothing new, want 4", n)
		}
	})
}
