package gcs_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func TestMain(m *testing.M) {
	proctest.Main(gcs.Open)
	// Idle connections to servers that have ended linger.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// Three processes on the emulator: one leader killed, one stopped past its term,
// one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	server := stores.FakeGCS(t, bucket)
	proctest.Run(t, proctest.Options{
		Address:  "gs://" + bucket + "/processes?anonymous=true&endpoint=" + server,
		Upstream: strings.TrimPrefix(server, "http://"),
	})
}
