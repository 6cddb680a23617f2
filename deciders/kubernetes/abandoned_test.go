package kubernetes_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The client that Open makes leaves a connection that has died without a word, though the API
// server speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	server := newImitation()
	relay := stores.NewRelay(t, stores.HTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := server.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer a.Body.Close()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.StatusCode)
		_, _ = io.Copy(w, a.Body)
	})))
	feedtest.Abandons(t, opened(t, "kubernetes://default/x?kubeconfig="+kubeconfig(t, "https://"+relay.Addr)), relay.Swallow)
}
