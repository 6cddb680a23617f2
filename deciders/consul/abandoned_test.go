package consul_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The client that Open makes leaves a connection that has died without a word.
func TestAbandonedConnection(t *testing.T) {
	server := httptest.NewServer(newImitation())
	t.Cleanup(server.Close)
	relay := stores.NewRelay(t, strings.TrimPrefix(server.URL, "http://"))
	feedtest.Abandons(t, feedtest.Opened(t, consul.Open, "consul://"+relay.Addr+"/elections/web"), relay.Swallow)
}
