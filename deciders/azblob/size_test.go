package azblob_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
)

// A record of a candidate with two addresses is short.
func TestRecordSize(t *testing.T) {
	server, got := newFake(), []byte(nil)
	d := azblob.NewDecider(inProcess(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(got))
		server.ServeHTTP(w, r)
	}), nil), containerName, "one", nil)
	e := httpfault.Record()
	e.ElectionNumber, e.Extension = 1<<40, 1<<40
	if _, err := d.WriteEntry(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if n := len(got); n >= 600 || !bytes.HasPrefix(got, []byte(`{"leaderelection"`)) {
		t.Errorf("%d bytes: %s", n, got)
	}
}
