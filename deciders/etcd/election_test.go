package etcd_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The server is killed, and started again with what it had on disk.
func TestOutage(t *testing.T) {
	stores.Nightly(t, "it breaks the store and waits")
	server := stores.Etcd(t)
	feedtest.Outage(t, elections(server.Endpoint), feedtest.Trouble{Break: server.Stop, Heal: func() { server.Start(t) }})
}

// Three candidates in processes of their own: one is killed, one stopped past its
// term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	server := stores.Etcd(t)
	proctest.Run(t, proctest.Options{Address: "etcd://" + server.Endpoint + "/elections/processes", Upstream: server.Endpoint})
}
