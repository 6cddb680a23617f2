package etcd_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// client returns a client of its own, closed at the end of the test.
func client(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
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
		key := uniqueKey(t)
		return func() leaderelection.RaceDecider {
			return etcd.NewDecider(client(t, endpoints...), key, nil)
		}
	}
}

func TestConformance(t *testing.T) {
	server := stores.Etcd(t)
	decidertest.Run(t, elections(server.Endpoint))
}

var keys atomic.Uint64

func uniqueKey(t testing.TB) string { return fmt.Sprintf("elections/%s/%d", t.Name(), keys.Add(1)) }
