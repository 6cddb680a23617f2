package redis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// inner are the commands that scripts call, and the one by which this is asked:
// the server counts them, and they are no requests.
const inner = " hmget hget exists time hset persist publish info "

// requests is how many requests the server has had.
func requests(t testing.TB, server *stores.RedisServer) (n int) {
	t.Helper()
	for line := range strings.Lines(server.Ask(t, "INFO commandstats")) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		var calls int
		if _, err := fmt.Sscanf(rest, "calls=%d", &calls); err == nil && !strings.Contains(inner, " "+name+" ") {
			n += calls
		}
	}
	return n
}
