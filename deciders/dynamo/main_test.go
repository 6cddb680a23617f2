package dynamo_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func TestMain(m *testing.M) {
	proctest.Main(dynamo.Open)
	goleak.VerifyTestMain(m)
}

// Three processes on one emulator: one leader is killed, one is stopped past its
// term, one is cut off.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	endpoint := stores.DynamoDBLocal(t)
	makeTable(t, newClient(t, endpoint), "elections", "key:S")
	proctest.Run(t, proctest.Options{
		Address:  "dynamodb://elections/team/one?region=eu-central-1&endpoint=" + endpoint,
		Upstream: strings.TrimPrefix(endpoint, "http://"),
		Env:      stores.AWSEnv("key", "secret"),
	})
}
