package stores

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Versitygw starts versitygw, a real S3 server on a directory, and returns its
// URL, for clients with UsePathStyle. It has no buckets yet. To "root", with the
// secret "root-secret", all is allowed; to "guest", with "guest-secret", nothing
// is. Buckets can be versioned.
func Versitygw(t testing.TB) string {
	t.Helper()
	return "http://" + Server(t, "versitygw", "-data", t.TempDir(), "-versions", t.TempDir()).Addr
}

// FakeS3 returns an S3 server in process, empty and in memory: its handler, for
// clients without sockets, which takes any credentials and wants UsePathStyle.
func FakeS3() http.Handler {
	return gofakes3.New(s3mem.New()).Server()
}

// GoFakeS3 serves FakeS3 and returns its URL.
func GoFakeS3(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(FakeS3())
	t.Cleanup(s.Close)
	return s.URL
}
