package s3_test

import (
	"context"
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func TestMain(m *testing.M) {
	proctest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		return s3.Open(ctx, u)
	})
	goleak.VerifyTestMain(m)
}

// Three processes on one server: one leader is killed, one is stopped past its
// term, one is cut off.
func TestProcesses(t *testing.T) {
	endpoint := stores.Versitygw(t)
	bucket := newBucket(t, newClient(t, endpoint))
	server, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proctest.Run(t, proctest.Options{
		Address:  "s3://" + bucket + "/team/one?region=us-east-1&path_style=true&endpoint=" + endpoint,
		Upstream: server.Host,
		Env:      []string{"AWS_ACCESS_KEY_ID=root", "AWS_SECRET_ACCESS_KEY=root-secret", "AWS_EC2_METADATA_DISABLED=true"},
	})
}

// Members of a group of package shard, in processes of their own, for as long as
// PROCTEST_GROUP_FOR says. See proctest.RunGroup.
func TestShards(t *testing.T) {
	endpoint := stores.Versitygw(t)
	bucket := newBucket(t, newClient(t, endpoint))
	server, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proctest.RunGroup(t, proctest.GroupOptions{
		Address:  "s3://" + bucket + "/shards/{name}?region=us-east-1&path_style=true&endpoint=" + endpoint,
		Upstream: server.Host,
		Env:      []string{"AWS_ACCESS_KEY_ID=root", "AWS_SECRET_ACCESS_KEY=root-secret", "AWS_EC2_METADATA_DISABLED=true"},
	})
}
