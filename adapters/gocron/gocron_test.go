//go:build go1.25

package gocron_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	legocron "github.com/c8e606e4/leaderelection/adapters/gocron"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/viewtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	T     = 15 * time.Second
	S     = time.Second
	every = time.Second
)

// ledger is what the jobs of all candidates have done.
type ledger struct {
	t    *testing.T
	mu   sync.Mutex
	runs []run
	at   map[time.Time]bool // the instants of the runs
}

func (l *ledger) add(r run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, r)
	l.at[time.Now()] = true
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs)
}

// born is the first number of an election that begins with its bubble, in 2000.
const born le.ElectionNumber = 946684800

type run struct {
	by     string
	number le.ElectionNumber
}

// since returns who has run jobs since the n-th run, each once.
func (l *ledger) since(n int) []run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Compact(slices.Clone(l.runs[n:]))
}

// candidate is one with a scheduler that has a job every second.
type candidate struct {
	id       string
	store    *memory.Decider
	campaign *le.Campaign
	elector  *legocron.Elector
}

func join(t *testing.T, ctx context.Context, l *ledger, store *memory.Decider, id string) *candidate {
	t.Helper()
	c := &candidate{id: id, store: store}
	var err error
	c.campaign, err = le.Config{Decider: store, LeaderID: id, TermLength: T, MaxClockSkew: S, OnElected: func(context.Context, *le.TimeView) {}}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.elector = legocron.NewElector(c.campaign)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(c.elector))
	if err != nil {
		t.Fatal(err)
	}
	job := func() {
		view := c.campaign.View()
		if !view.ValueInFuture() {
			l.t.Errorf("a job of %s begins after its view has ended", id)
		}
		l.add(run{id, view.ElectionNumber() - born + 1})
	}
	if _, err := scheduler.NewJob(gocron.DurationJob(every), gocron.NewTask(job), gocron.WithSingletonMode(gocron.LimitModeReschedule)); err != nil {
		t.Fatal(err)
	}
	scheduler.Start()
	context.AfterFunc(ctx, func() { _ = scheduler.Shutdown() })
	return c
}

// Jobs run on the leader alone: through a hand-over, and with a leader that is cut
// off from the store.
func TestJobsRunOnTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d, l := memory.NewDecider(), &ledger{t: t, at: map[time.Time]bool{}}
		a := join(t, ctx, l, d.Handle(), "a")
		synctest.Wait() // a leads
		b := join(t, ctx, l, d.Handle(), "b")
		expect := func(n int, want ...run) {
			t.Helper()
			synctest.Wait()
			if got := l.since(n); !slices.Equal(got, want) {
				t.Fatalf("ran: %v, want %v", got, want)
			}
		}
		time.Sleep(10*time.Second + every/2)
		expect(0, run{"a", 1})
		// In time without jitter gocron now and then runs a job twice in one instant, also
		// without an elector.
		if n := len(l.at); n < 9 || n > 11 {
			t.Errorf("runs at %d instants in 10 s, want one a second", n)
		}
		if err := b.elector.IsLeader(ctx); !errors.Is(err, le.ErrNotLeading) || !strings.Contains(err.Error(), fmt.Sprintf(`"a"'s, with token %d`, born)) {
			t.Errorf("b: %v", err)
		}
		if err := a.elector.IsLeader(ctx); err != nil {
			t.Errorf("a: %v", err)
		}

		n := l.len()
		if err := le.Transfer(ctx, d, "b"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		expect(n, run{"b", 2})

		// Nobody runs anything between the end of b's view and a's leadership.
		n = l.len()
		b.store.Inject(memory.LoseRequests())
		time.Sleep(3 * T)
		expect(n, run{"b", 2}, run{"a", 3})
		if err := b.elector.IsLeader(ctx); !errors.Is(err, le.ErrNotLeading) {
			t.Errorf("b, cut off: %v", err)
		}
		cancel()
		<-a.campaign.Done()
		<-b.campaign.Done()
		synctest.Wait()
		time.Sleep(15 * time.Second) // gocron's own patience with its goroutines
	})
}

func TestIsLeader(t *testing.T) {
	c := viewtest.NewCandidate(nil)
	e := legocron.NewElector(c)
	for name, is := range map[string]struct {
		status le.Status
		over   bool
		leader bool
	}{
		"leading":        {le.Leading, false, true},
		"draining":       {le.Draining, false, false},
		"after the view": {le.Leading, true, false},
	} {
		c.Lead(7, time.Now().Add(time.Hour))
		if c.SetStatus(is.status); is.over {
			c.SetEnd(time.Now())
		}
		if err := e.IsLeader(t.Context()); (err == nil) != is.leader || err != nil && !errors.Is(err, le.ErrNotLeading) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A scheduler whose jobs run on the leader.
func ExampleNewElector() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	elected := make(chan struct{})
	campaign, err := le.Config{
		Decider:   memory.NewDecider(), // a real program uses a store that all can reach
		LeaderID:  "worker-7",
		OnElected: func(context.Context, *le.TimeView) { close(elected) },
	}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(legocron.NewElector(campaign)))
	if err != nil {
		fmt.Println(err)
		return
	}
	billed := make(chan string, 1)
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(func() {
		view := campaign.View()
		select { // before each act: if view.ValueInFuture() ...
		case billed <- fmt.Sprint("billing with a fencing token: ", view.ElectionNumber() > 0):
		default:
		}
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	<-elected
	fmt.Println(<-billed)

	_ = scheduler.Shutdown()
	cancel()
	<-campaign.Done()
	// Output:
	// billing with a fencing token: true
}
