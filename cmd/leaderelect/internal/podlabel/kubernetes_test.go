//go:build !no_kubernetes

package podlabel_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/podlabel"
)

// The requests are what an API server expects; one itself is asked by make packages.
func TestOpen(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Content-Type"), string(body)))
		switch {
		case r.URL.Path == "/api/v1/namespaces/shop/pods/gone":
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"pods \"gone\" not found"}`)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","items":[{"metadata":{"name":"web-0"}},{"metadata":{"name":"web-1"}}]}`)
		}
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","clusters":[{"name":"test","cluster":{"server":%q}}],
"contexts":[{"name":"test","context":{"cluster":"test","namespace":"shop"}}]}`, server.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	pods, err := podlabel.Open("app=web")
	if err != nil {
		t.Fatal(err)
	}
	if names, err := pods.Labelled(t.Context()); err != nil || !slices.Equal(names, []string{"web-0", "web-1"}) {
		t.Error(names, err)
	}
	if err := pods.Label(t.Context(), "web-0", true); err != nil {
		t.Error(err)
	}
	if err := pods.Label(t.Context(), "gone", false); err == nil || !strings.Contains(err.Error(), `labelling the pod gone: the API server answers 404 Not Found: pods "gone" not found`) {
		t.Error(err)
	}
	want := []string{"GET /api/v1/namespaces/shop/pods?labelSelector=app%3Dweb%2Cleaderelection%2Fleader ",
		`PATCH /api/v1/namespaces/shop/pods/web-0 application/merge-patch+json{"metadata":{"labels":{"leaderelection/leader":"true"}}}`,
		`PATCH /api/v1/namespaces/shop/pods/gone application/merge-patch+json{"metadata":{"labels":{"leaderelection/leader":null}}}`}
	if !slices.Equal(asked, want) {
		t.Errorf("asked were\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
	if _, err := podlabel.Open(" "); err == nil {
		t.Error("a selector of all pods is taken")
	}
}
