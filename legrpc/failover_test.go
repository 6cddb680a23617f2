package legrpc_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/legrpc"
)

// retry is a service config for methods that are idempotent.
const retry = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
	"initialBackoff": "0.02s", "maxBackoff": "0.5s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// follow returns a channel to the leader.
func follow(t testing.TB, d le.RaceDecider, skew time.Duration) *grpc.ClientConn {
	t.Helper()
	return dial(t, "leaderelection:///test", legrpc.NewBuilder(le.WatchConfig{Decider: d, MaxClockSkew: skew}, nil).DialOptions(nil)...)
}

// candidate is one with a gRPC server that answers with its leadership's number.
type candidate struct {
	id       string
	store    *memory.Decider
	campaign *le.Campaign
	elected  chan le.ElectionNumber
}

// later is a Candidate that is there once the campaign is: its address is part
// of the campaign's Config.
type later struct {
	ready    chan struct{}
	campaign *le.Campaign
}

func (l *later) View() *le.TimeView   { <-l.ready; return l.campaign.View() }
func (l *later) Status() le.Status    { <-l.ready; return l.campaign.Status() }
func (l *later) Leader() le.RaceEntry { <-l.ready; return l.campaign.Leader() }

func join(t testing.TB, ctx context.Context, d *memory.Decider, id string, term, skew time.Duration) *candidate {
	t.Helper()
	return joinWith(t, ctx, d, id, term, skew, retry)
}

func joinWith(t testing.TB, ctx context.Context, d *memory.Decider, id string, term, skew time.Duration, params string) *candidate {
	t.Helper()
	c := &candidate{id: id, store: d.Handle(), elected: make(chan le.ElectionNumber, 100_000)}
	l := &later{ready: make(chan struct{})}
	address := serve(t, l, &service{say: func(ctx context.Context, _ string) (string, error) {
		return fmt.Sprint(uint64(le.ViewFrom(ctx).ElectionNumber())), nil
	}})
	campaign, err := le.Config{
		Decider: c.store, LeaderID: id, HostPort: []string{address}, ConnectionParams: []byte(params),
		TermLength: term, MaxClockSkew: skew,
		OnElected: func(_ context.Context, v *le.TimeView) { c.elected <- v.ElectionNumber() },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.campaign, l.campaign = campaign, campaign
	close(l.ready)
	return c
}

// load makes calls, and checks that no answer comes from an earlier leadership than
// one that was heard of before the call: such a process's view had ended.
type load struct {
	conn     *grpc.ClientConn
	greatest atomic.Uint64
	answered atomic.Int64
	refused  atomic.Int64
	mu       sync.Mutex
	faults   []string
}

func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		before := l.greatest.Load()
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		text, err := say(call, l.conn, "", grpc.WaitForReady(true))
		cancel()
		var number uint64
		switch _, is := legrpc.RefusalOf(err); {
		case is || status.Code(err) == codes.Unavailable:
			l.refused.Add(1)
			continue
		case err != nil:
			l.fault("%v", err)
			continue
		}
		if _, err := fmt.Sscan(text, &number); err != nil || number < before {
			l.fault("answered by leadership %q after one by leadership %d", text, before)
		}
		for old := l.greatest.Load(); old < number && !l.greatest.CompareAndSwap(old, number); old = l.greatest.Load() {
		}
		l.answered.Add(1)
	}
}

func (l *load) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// await returns when n more calls have been answered.
func (l *load) await(n int64) {
	for target := l.answered.Load() + n; l.answered.Load() < target; {
		runtime.Gosched()
	}
}

// Calls follow the leader through hand-overs, and through fail-overs in which the
// leader is cut off from the store while it can still be reached by its clients.
func TestCallsThroughFailovers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := memory.NewDecider()
	term, skew := 600*time.Millisecond, 50*time.Millisecond
	all := map[string]*candidate{}
	for _, id := range []string{"a", "b", "c"} {
		all[id] = join(t, ctx, d, id, term, skew)
	}
	conn := follow(t, d.Handle(), skew)
	l := &load{conn: conn}
	working, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { l.run(working) })
	}
	l.await(20)
	for i := range 12 {
		old := d.Entry()
		for _, id := range []string{"a", "b", "c"} {
			if id != old.LeaderID && i%5 != 0 { // a hand-over
				if err := le.Transfer(ctx, d, id); err != nil {
					t.Logf("transfer to %s: %v", id, err)
				}
				break
			}
		}
		cut := all[old.LeaderID]
		if i%5 == 0 && cut != nil {
			cut.store.Inject(memory.LoseRequests())
		}
		for l.greatest.Load() <= uint64(old.ElectionNumber) {
			runtime.Gosched()
		}
		l.await(20)
		if cut != nil {
			cut.store.Inject(nil)
		}
	}
	stop()
	wg.Wait()
	cancel()
	for _, c := range all {
		<-c.campaign.Done()
	}
	t.Logf("%d calls answered, by leaderships up to %d; %d refused after all retries", l.answered.Load(), l.greatest.Load(), l.refused.Load())
	slices.Sort(l.faults)
	for i, f := range slices.Compact(l.faults) {
		if t.Errorf("%s", f); i > 10 {
			break
		}
	}
}

// A leader that hands over loses no call, though nothing repeats those that end with Unavailable.
func TestHandOversLoseNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := memory.NewDecider()
	all := map[string]*candidate{}
	for _, id := range []string{"a", "b"} {
		all[id] = joinWith(t, ctx, d, id, time.Hour, S, "")
	}
	conn := follow(t, d.Handle(), S)
	var stop atomic.Bool
	var wg sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				if _, err := say(t.Context(), conn, ""); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			}
		})
	}
	for range 12 {
		for n := answered.Load() + 20; answered.Load() < n; {
			runtime.Gosched()
		}
		next := map[string]string{"a": "b", "b": "a"}[d.Entry().LeaderID]
		for len(all[next].elected) > 0 {
			<-all[next].elected
		}
		if err := le.Transfer(ctx, d, next); err != nil {
			t.Fatal(err)
		}
		<-all[next].elected
	}
	stop.Store(true)
	wg.Wait()
	cancel()
	for _, c := range all {
		<-c.campaign.Done()
	}
	t.Logf("%d calls", answered.Load())
}

// BenchmarkHandover is how long after a graceful hand-over's new leader was
// elected a call is answered by it.
func BenchmarkHandover(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	d := memory.NewDecider()
	x, y := join(b, ctx, d, "a", time.Hour, S), join(b, ctx, d, "b", time.Hour, S)
	conn := follow(b, d.Handle(), S)
	leader, next := x, y
	select {
	case <-x.elected:
	case <-y.elected:
		leader, next = y, x
	}
	var took []time.Duration
	for b.Loop() {
		if err := le.Transfer(ctx, d, next.id); err != nil {
			b.Fatal(err)
		}
		number := <-next.elected
		at := time.Now()
		for {
			if text, err := say(ctx, conn, "", grpc.WaitForReady(true)); err == nil && text == fmt.Sprint(uint64(number)) {
				break
			}
		}
		took = append(took, time.Since(at))
		leader, next = next, leader
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-µs")
	cancel()
	<-x.campaign.Done()
	<-y.campaign.Done()
}
