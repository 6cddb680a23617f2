package mysql_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// Three candidates in processes of their own: one is killed, one stopped past its
// term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	addr := stores.MariaDB(t).Addr
	proctest.Run(t, proctest.Options{Address: "mysql://root@" + addr + "/test?election=e&create=true", Upstream: addr})
}

// Whatever befalls the leader's connections for a while, it keeps its leadership.
func TestFaults(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	addr := stores.MariaDB(t).Addr
	proxy := stores.NewRelay(t, addr)
	const rest = "/test?election=e&create=true"
	proctest.Faults(t, opened(t, "mysql://root@"+proxy.Addr+rest), opened(t, "mariadb://root@"+addr+rest), proxy)
}
