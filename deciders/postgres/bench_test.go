package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func BenchmarkPostgres(b *testing.B) {
	decidertest.Bench(b, elections(stores.Postgres(b).Addr))
}

// BenchmarkBare is the client's own call with the same statements and a record as
// long: what BenchmarkPostgres takes beyond it is ours.
func BenchmarkBare(b *testing.B) {
	p := pool(b, stores.Postgres(b).Addr)
	e := feedtest.State(1, nil)
	e.HostPort, e.ConnectionParams = append(e.HostPort, "[fd00::1]:100"), []byte("\x00\xff 1 1000")
	e.LeaderID, e.Incarnation, e.Successor = "candidate-1", "incarnation-1", "successor-1-1000"
	if _, err := postgres.NewDecider(p, "leaderelection", "e", create).WriteEntry(b.Context(), e); err != nil {
		b.Fatal(err)
	}
	d := postgres.NewDecider(p, "leaderelection", "e", create)
	read, update, err := d.Statements(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var version, channel, record string
	var micros int64
	look := func() {
		if err := p.QueryRow(b.Context(), read, pgx.QueryExecModeExec, "e").Scan(&version, &channel, &micros, &record); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("Read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			look()
		}
	})
	b.Run("Write", func(b *testing.B) {
		look()
		versions := [2]string{version, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
		if versions[0] == versions[1] {
			versions[0] = "ZYXWVUTSRQPONMLKJIHGFEDCBA"
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			was, now := versions[i%2], versions[(i+1)%2]
			if err := p.QueryRow(b.Context(), update, pgx.QueryExecModeExec, "e", now, record, was, now+"\n"+record).Scan(&micros, nil, nil, nil, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
