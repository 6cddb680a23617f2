package mongodb_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The client that Open makes leaves all connections of its pool that have died without a word, and
// not only that of the call.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, imitate(t).addr)
	d := opened(t, "mongodb://"+relay.Addr+"/"+database+"/"+collection+"/web?directConnection=true&minPoolSize=4")
	feedtest.Fill(t, d)
	feedtest.Abandons(t, d, relay.Swallow)
}
