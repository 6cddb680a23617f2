package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(postgres.Open)
	goleak.VerifyTestMain(m)
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *postgres.Decider {
	t.Helper()
	return feedtest.Opened(t, postgres.Open, address)
}

// pool returns a pool of its own, prepared, closed at the end of the test.
func pool(t testing.TB, addr string, more ...string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig("postgres://postgres@" + addr + "/postgres?sslmode=disable&pool_max_conns=4&" + strings.Join(more, "&"))
	if err != nil {
		t.Fatal(err)
	}
	postgres.Prepare(config)
	p, err := pgxpool.NewWithConfig(t.Context(), config)
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

var create = &postgres.Options{CreateTable: true}

// elections returns what makes an election after the other, each handle with a pool
// of its own.
func elections(addr string, more ...string) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider {
			return postgres.NewDecider(pool(t, addr, more...), "leaderelection", name, create)
		}
	}
}
