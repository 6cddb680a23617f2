//go:build !race

package gcs_test

import "testing"

// The Decider allocates at most a fifth more than the SDK does by itself.
func TestOwnBytes(t *testing.T) {
	read, write := pairs(t)
	t.Run("read", func(t *testing.T) { read.Bytes(t) })
	t.Run("write", func(t *testing.T) { write.Bytes(t) })
}
