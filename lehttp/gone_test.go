//go:build go1.25

package lehttp_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/lehttp"
	"github.com/c8e606e4/leaderelection/shard"
)

// A shard that is the group's no more has no owner; when it is back, it has one again.
func TestShardThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		ctx, cancel := context.WithCancel(t.Context())
		var worked atomic.Int64
		router := g.router(ctx)
		proxy := router.Proxy(byHeader, &lehttp.ProxyOptions{Transport: g})
		for i, want := range []int{200, 503, 200} {
			shards := shard.Numbered(4 - i%2*2)
			m := g.member("a", func(m *shard.Member) http.Handler {
				return lehttp.RequireOwner(m, byHeader, nil)(answersAs("a", &worked))
			},
				func(c *shard.Config) { c.Shards = shards })
			owns(m, shards.Len())
			time.Sleep(10 * time.Second)
			if w := through(proxy, "GET", "3"); w.Code != want {
				t.Errorf("with %d shards: %d %s, want %d", shards.Len(), w.Code, w.Body, want)
			}
			if w := through(proxy, "GET", "1"); w.Code != 200 {
				t.Errorf("with %d shards: %d %s", shards.Len(), w.Code, w.Body)
			}
			leave(t, m)
		}
		cancel()
		<-router.Done()
	})
}
