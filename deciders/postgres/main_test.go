package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		return open(ctx, address)
	})
	goleak.VerifyTestMain(m)
}

func open(ctx context.Context, address string) (*postgres.Decider, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, u)
}

func opened(t testing.TB, address string) *postgres.Decider {
	t.Helper()
	d, err := open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// pool returns a pool of its own, closed at the end of the test.
func pool(t testing.TB, addr string, more ...string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), "postgres://postgres@"+addr+"/postgres?sslmode=disable&pool_max_conns=4&"+strings.Join(more, "&"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func exec(t testing.TB, p *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

var names atomic.Uint64

func unique(t testing.TB) string { return fmt.Sprintf("%s/%d", t.Name(), names.Add(1)) }

var create = &postgres.Options{CreateTable: true}

// elections returns what makes an election after the other, each handle with a pool
// of its own.
func elections(addr string, more ...string) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := unique(t)
		return func() leaderelection.RaceDecider {
			return postgres.NewDecider(pool(t, addr, more...), "leaderelection", name, create)
		}
	}
}

func state(number uint64, token leaderelection.LeaderToken) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID: "a", HostPort: []string{"10.0.0.1:443"}, TermExpiry: time.Now().Add(time.Minute), TermLength: 15 * time.Second,
		ElectionNumber: leaderelection.ElectionNumber(number), Incarnation: "i", Token: token,
	}
}

func write(t testing.TB, d leaderelection.RaceDecider, number uint64, token leaderelection.LeaderToken) leaderelection.LeaderToken {
	t.Helper()
	next, err := d.WriteEntry(t.Context(), state(number, token))
	if err != nil {
		t.Fatalf("WriteEntry: %v", err)
	}
	return next
}

func read(t testing.TB, d leaderelection.RaceDecider) *leaderelection.RaceEntry {
	t.Helper()
	e, err := d.ReadCurrent(t.Context())
	if err != nil {
		t.Fatalf("ReadCurrent: %v", err)
	}
	return e
}

type news struct {
	*leaderelection.RaceEntry
	err error
}

func follow(t testing.TB, d leaderelection.ChangeFeed) <-chan news {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan news, 100)
	go func() {
		defer close(out)
		for e, err := range d.Changes(ctx) {
			out <- news{e, err}
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range out {
		}
	})
	return out
}

func next(t testing.TB, feed <-chan news) news {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case n, ok := <-feed:
		if !ok {
			t.Fatal("the feed has ended")
		}
		return n
	case <-timeout.C:
		t.Fatal("no news for 30 s")
	}
	return news{}
}

func permanent(t testing.TB, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("%v does not wrap ErrPermanent", err)
	}
	says(t, err, words...)
}

func passing(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil || errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("%v is not an error that may pass", err)
	}
	says(t, err, words...)
}

func says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}
