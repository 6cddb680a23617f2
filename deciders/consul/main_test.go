package consul_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		return feedtest.Open(ctx, consul.Open, address)
	})
	goleak.VerifyTestMain(m)
}
