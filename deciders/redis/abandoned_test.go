package redis_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The client that Open makes leaves a connection that has died without a word.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, stores.Redis(t).Addr)
	feedtest.Abandons(t, opened(t, "redis://"+relay.Addr+"?key=election"), relay.Swallow)
}
