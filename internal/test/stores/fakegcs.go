package stores

import "testing"

// FakeGCS starts fake-gcs-server with these buckets, empty and in memory, and
// returns its URL, http://127.0.0.1:port. It ignores preconditions of deletions,
// and credentials.
func FakeGCS(t testing.TB, buckets ...string) string {
	t.Helper()
	return "http://" + Server(t, "fakegcs", buckets...).Addr
}
