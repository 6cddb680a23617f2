package s3_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func TestMain(m *testing.M) {
	proctest.Main(s3.Open)
	goleak.VerifyTestMain(m)
}

// Three processes on one server: one leader is killed, one is stopped past its
// term, one is cut off.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	endpoint := stores.Versitygw(t)
	bucket := newBucket(t, newClient(t, endpoint))
	proctest.Run(t, proctest.Options{
		Address:  "s3://" + bucket + "/team/one?region=us-east-1&path_style=true&endpoint=" + endpoint,
		Upstream: strings.TrimPrefix(endpoint, "http://"),
		Env:      stores.AWSEnv("root", "root-secret"),
	})
}
