package fromredsync

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

func server(t *testing.T) (*miniredis.Miniredis, *goredis.Client) {
	s := miniredis.RunT(t)
	client := goredis.NewClient(&goredis.Options{Addr: s.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return s, client
}

// job is a piece of work that a test lets begin and end.
type job struct {
	began, end chan struct{}
	result     chan error
}

func newJob() *job {
	return &job{began: make(chan struct{}), end: make(chan struct{}), result: make(chan error, 1)}
}

func (j *job) work(ctx context.Context) error {
	close(j.began)
	select {
	case <-j.end:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (j *job) workAsLeader(ctx context.Context, view *leaderelection.TimeView) error {
	if !view.ValueInFuture() || view.ElectionNumber() == leaderelection.NoElections {
		return errors.New("the job runs without a view or a token")
	}
	return j.work(ctx)
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

func (j *job) waits(t *testing.T, what string) {
	t.Helper()
	select {
	case <-j.began:
		t.Fatalf("it runs at once with %s", what)
	default:
	}
}

func TestBefore(t *testing.T) {
	_, client := server(t)
	first, second := newJob(), newJob()
	go func() { first.result <- Before(t.Context(), client, first.work) }()
	within(t, "the first job", first.began)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { second.result <- Before(ctx, client, second.work) }()
	second.waits(t, "the first")
	close(first.end)
	if err := within(t, "the first job's end", first.result); err != nil {
		t.Error(err)
	}
	within(t, "the second job", second.began)
	cancel()
	if err := within(t, "the second job's end", second.result); !errors.Is(err, context.Canceled) {
		t.Errorf("Before: %v", err)
	}
}

func TestAfter(t *testing.T) {
	_, client := server(t)
	first, second := newJob(), newJob()
	go func() { first.result <- After(t.Context(), client, "a", first.workAsLeader) }()
	within(t, "the first job", first.began)
	go func() { second.result <- After(t.Context(), client, "b", second.workAsLeader) }()
	second.waits(t, "the first")
	close(first.end)
	if err := within(t, "the first job's end", first.result); err != nil {
		t.Error(err)
	}
	within(t, "the second job", second.began)
	close(second.end)
	if err := within(t, "the second job's end", second.result); err != nil {
		t.Error(err)
	}
}

// A bridging process works only when an old one does not, and holds the old lock then.
func TestBridge(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	s, client := server(t)
	old, bridge, older := newJob(), newJob(), newJob()
	go func() { old.result <- Before(t.Context(), client, old.work) }()
	within(t, "the old job", old.began)
	go func() { bridge.result <- Bridge(t.Context(), client, "new", bridge.workAsLeader) }()
	leads := make(chan struct{})
	go func() {
		_ = leaderelection.WatchConfig{Decider: redis.NewDecider(client, "election:report", nil)}.Watch(t.Context(),
			func(_ context.Context, e leaderelection.RaceEntry) {
				if e.LeaderID == "new" {
					select {
					case leads <- struct{}{}:
					case <-t.Context().Done():
					}
				}
			})
	}()
	within(t, "the bridge leads", leads)
	bridge.waits(t, "the old one")
	close(old.end)
	within(t, "the old job's end", old.result)
	within(t, "the bridge's job", bridge.began)
	if !s.Exists("lock:report") {
		t.Error("the bridge works without the old lock")
	}
	go func() { older.result <- Before(t.Context(), client, older.work) }()
	older.waits(t, "the bridge")
	close(bridge.end)
	if err := within(t, "the bridge's end", bridge.result); err != nil {
		t.Error(err)
	}
	within(t, "the job after a roll-back", older.began)
	close(older.end)
	within(t, "its end", older.result)
}

// The old key is no place for the record, and it is said so.
func TestOldKey(t *testing.T) {
	s, client := server(t)
	if err := s.Set("election:report", "a lock's value"); err != nil {
		t.Fatal(err)
	}
	if err := After(t.Context(), client, "a", newJob().workAsLeader); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("on a lock's key: %v", err)
	}
}
