package consul_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(consul.Open)
	goleak.VerifyTestMain(m)
}
