package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// However long writes hang, and however many calls are given up meanwhile, few connections of a
// candidate are open at the server. As many calls as a term of 15 s has in ten minutes.
func TestSessionsAreBounded(t *testing.T) {
	const calls, most = 160, 4
	server := stores.Redis(t)
	d := opened(t, fmt.Sprintf("redis://%s?key=k", server.Addr))
	token := feedtest.Write(t, d, 1, nil)
	server.Ask(t, "CLIENT PAUSE 600000 WRITE")
	failed := 0
	for i := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := d.WriteEntry(ctx, feedtest.State(2, token)); err != nil {
			failed++
		}
		cancel()
		if n := strings.Count(server.Ask(t, "CLIENT LIST"), "addr=127.") - 1; n > most { // less the one that asks
			t.Fatalf("after %d calls %d connections are open", i+1, n)
		}
	}
	if failed < calls {
		t.Errorf("%d of %d writes failed: do they hang?", failed, calls)
	}
	server.Ask(t, "CLIENT UNPAUSE")
	e := feedtest.Read(t, d)
	feedtest.Write(t, d, uint64(e.ElectionNumber)+1, e.Token)
}
