package rethinkdb_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
)

// connect returns a session of its own, closed at the end of the test.
func connect(t testing.TB, addr string) *r.Session {
	t.Helper()
	s, err := r.Connect(r.ConnectOpts{Address: addr, HandshakeVersion: r.HandshakeV0_4, Timeout: 5 * time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var names atomic.Uint64

func uniqueName() string { return fmt.Sprintf("election-%d-%d", os.Getpid(), names.Add(1)) }

func TestConformanceImitation(t *testing.T) {
	server := imitate(t)
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		name := uniqueName()
		return func() leaderelection.RaceDecider {
			return rethinkdb.NewDecider(connect(t, server.addr), "ops", "elections", name, nil)
		}
	})
}
