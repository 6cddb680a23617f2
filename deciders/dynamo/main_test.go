package dynamo_test

import (
	"context"
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func TestMain(m *testing.M) {
	proctest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		return dynamo.Open(ctx, u)
	})
	goleak.VerifyTestMain(m)
}

// Three processes on one emulator: one leader is killed, one is stopped past its
// term, one is cut off.
func TestProcesses(t *testing.T) {
	endpoint := stores.DynamoDBLocal(t)
	makeTable(t, newClient(t, endpoint), "elections", "key:S")
	server, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proctest.Run(t, proctest.Options{
		Address:  "dynamodb://elections/team/one?region=eu-central-1&endpoint=" + endpoint,
		Upstream: server.Host,
		Env:      []string{"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true"},
	})
}
