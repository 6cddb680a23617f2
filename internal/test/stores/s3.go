package stores

import "testing"

// Versitygw starts versitygw, a real S3 server on a directory, and returns its
// URL, for clients with UsePathStyle. It has no buckets yet. To "root", with the
// secret "root-secret", all is allowed; to "guest", with "guest-secret", nothing
// is. Buckets can be versioned.
func Versitygw(t testing.TB) string {
	t.Helper()
	return "http://" + Server(t, "versitygw", "-data", t.TempDir(), "-versions", t.TempDir()).Addr
}
