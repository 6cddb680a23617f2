package kubernetes_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
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
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://%s","insecure-skip-tls-verify":true}}],
"users":[{"name":"u","user":{"token":"x"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`, relay.Addr)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	feedtest.Abandons(t, opened(t, "kubernetes://default/x?kubeconfig="+file), relay.Swallow)
}
