package frometcd

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func client(t *testing.T) *clientv3.Client {
	t.Helper()
	server := stores.Etcd(t)
	server.Await(t)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// process is one that works from when it leads until it is stopped.
type process struct {
	began chan leaderelection.ElectionNumber // 0 from the old library
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, run func(ctx context.Context, work func(context.Context, *leaderelection.TimeView)) error) *process {
	p := &process{began: make(chan leaderelection.ElectionNumber, 1), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	go func() {
		p.ended <- run(ctx, func(ctx context.Context, view *leaderelection.TimeView) {
			if view != nil {
				p.began <- view.ElectionNumber()
			} else {
				p.began <- 0
			}
			<-ctx.Done()
		})
	}()
	return p
}

func before(c *clientv3.Client, host string) func(context.Context, func(context.Context, *leaderelection.TimeView)) error {
	return func(ctx context.Context, work func(context.Context, *leaderelection.TimeView)) error {
		return Before(ctx, c, host, func(ctx context.Context) { work(ctx, nil) })
	}
}

// within waits for what may take a while on a busy machine.
func within[E any](t *testing.T, what string, c <-chan E) (e E) {
	t.Helper()
	select {
	case e = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
	}
	return e
}

// One after the other leads.
func TestAfter(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	c := client(t)
	var first leaderelection.ElectionNumber
	for i, host := range []string{"a", "b"} {
		p := start(t, func(ctx context.Context, work func(context.Context, *leaderelection.TimeView)) error {
			return After(ctx, c, host, work)
		})
		n := within(t, host+" leads", p.began)
		if i == 0 {
			first = n
		}
		if want := first + leaderelection.ElectionNumber(i); n == 0 || n != want {
			t.Errorf("%s leads with number %d, want %d", host, n, want)
		}
		p.stop()
		within(t, host+" has stopped", p.ended)
	}
}

// A bridging process works only when an old one does not, and an old one only when no
// bridging one does.
func TestBridge(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	c := client(t)
	old := start(t, before(c, "old"))
	within(t, "old works", old.began)
	bridge := start(t, func(ctx context.Context, work func(context.Context, *leaderelection.TimeView)) error {
		return Bridge(ctx, c, "new", work)
	})
	// In the old election it stands behind the old process, and so has won the new one.
	second := make(chan struct{})
	go func() {
		defer close(second)
		for range c.Watch(t.Context(), "report/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
			if r, err := c.Get(t.Context(), "report/", clientv3.WithPrefix()); err == nil && r.Count == 2 {
				return
			}
		}
	}()
	within(t, "the bridge waits for the old election", second)
	select {
	case <-bridge.began:
		t.Fatal("old and bridge work at once")
	default:
	}
	old.stop()
	within(t, "old has stopped", old.ended)
	if n := within(t, "the bridge works", bridge.began); n == 0 {
		t.Error("the bridge works without a number")
	}
	again := start(t, before(c, "old again")) // rolled back
	bridge.stop()
	within(t, "the bridge has stopped", bridge.ended)
	within(t, "old works again", again.began)
	again.stop()
	within(t, "old has stopped again", again.ended)
}

// The new election counts on from where the old one was.
func TestCountsOn(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	c := client(t)
	for name, d := range map[string]leaderelection.RaceDecider{
		"memory": memory.NewDecider(),
		"etcd":   etcd.NewDecider(c, "elections/seeded", nil),
	} {
		t.Run(name, func(t *testing.T) {
			if err := leaderelection.Reset(t.Context(), d, 4711, false); err != nil {
				t.Fatal(err)
			}
			if err := leaderelection.Reset(t.Context(), d, 4710, true); err == nil {
				t.Error("the count went back")
			}
			err := leaderelection.Config{Decider: d, LeaderID: "a"}.Run(t.Context(), func(_ context.Context, view *leaderelection.TimeView) error {
				if n := view.ElectionNumber(); n != 4712 {
					t.Errorf("the first leader has token %d, want 4712", n)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
