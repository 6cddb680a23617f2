package postgres_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// Three candidates in processes of their own: one is killed, one stopped past its
// term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	addr := stores.Postgres(t).Addr
	proctest.Run(t, proctest.Options{Address: "postgres://postgres@" + addr + "/postgres?sslmode=disable&election=e&create=true", Upstream: addr})
}

// Whatever befalls the leader's connections for a while, it keeps its leadership.
func TestFaults(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	addr := stores.Postgres(t).Addr
	proxy := stores.NewRelay(t, addr)
	leader := opened(t, "postgres://postgres@"+proxy.Addr+"/postgres?sslmode=disable&election=e&create=true")
	proctest.Faults(t, leader, postgres.NewDecider(pool(t, addr), "leaderelection", "e", create), proxy)
}
