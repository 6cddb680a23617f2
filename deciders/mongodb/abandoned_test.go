package mongodb_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// The client that Open makes leaves a connection that has died without a word.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, imitate(t).addr)
	feedtest.Abandons(t, opened(t, "mongodb://"+relay.Addr+"/"+database+"/"+collection+"/web?directConnection=true"), relay.Swallow)
}
