package etcd_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(etcd.Open)
	goleak.VerifyTestMain(m)
}

// client returns a client of its own, closed at the end of the test.
func client(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	return clientOf(t, clientv3.Config{Endpoints: endpoints})
}

func clientOf(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Logger = zap.NewNop()
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// elections returns what makes an election after the other, each on a key of the
// test's own, each handle with a client of its own.
func elections(endpoints ...string) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		key := feedtest.Unique()
		return func() leaderelection.RaceDecider {
			return etcd.NewDecider(client(t, endpoints...), key, nil)
		}
	}
}

func open(ctx context.Context, address string) (*etcd.Decider, error) {
	return feedtest.Open(ctx, etcd.Open, address)
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *etcd.Decider {
	t.Helper()
	return feedtest.Opened(t, etcd.Open, address)
}
