// Package fakes3 is an S3 server in process, empty and in memory, for tests. It is a
// module of its own, so that gofakes3 is not among what other tests need.
package fakes3

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Handler returns a new server's handler, for clients without sockets, which takes any
// credentials and wants UsePathStyle.
func Handler() http.Handler {
	return gofakes3.New(s3mem.New()).Server()
}

// Serve serves a Handler on loopback until the test ends, and returns its URL.
func Serve(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(Handler())
	t.Cleanup(s.Close)
	return s.URL
}
