package rethinkdb_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The sessions that Open makes leave a connection that has died without a word.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, imitate(t).addr)
	feedtest.Abandons(t, opened(t, "rethinkdb://"+relay.Addr+"/leaderelection_test/elections/web"), relay.Swallow)
}
