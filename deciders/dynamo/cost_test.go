//go:build !race

package dynamo_test

import "testing"

// The Decider allocates at most a fifth more than the SDK does by itself.
func TestOwnBytes(t *testing.T) {
	t.Run("read", func(t *testing.T) { readers(t).Bytes(t) })
	t.Run("write", func(t *testing.T) { writers(t).Bytes(t) })
}
