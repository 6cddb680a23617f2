//go:build go1.25

package lehttp_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/lehttp"
	"github.com/c8e606e4/leaderelection/shard"
)

// A shard that is the group's no more is one that it never had, even to a request that waits for an
// owner. When it is back, it has an owner again.
func TestShardThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		var worked atomic.Int64
		router := g.router()
		proxy := router.Proxy(byHeader, &lehttp.ProxyOptions{Transport: g, Wait: time.Hour})
		redirect := router.Redirect(byHeader, nil)
		at := func(h http.Handler, name string, want int) {
			t.Helper()
			if w := through(h, "GET", name); w.Code != want {
				t.Errorf("shard %s: %d %s, want %d", name, w.Code, w.Body, want)
			}
		}
		for i, want := range []int{200, 404, 200} {
			var wg sync.WaitGroup
			if want == 404 { // nobody is there, and the shard is still known
				wg.Go(func() { at(proxy, "3", 404) })
				time.Sleep(10 * time.Second)
			}
			shards := shard.Numbered(4 - i%2*2)
			m := g.member("a", func(m *shard.Member) http.Handler {
				return lehttp.RequireOwner(m, byHeader, nil)(answersAs("a", &worked))
			},
				func(c *shard.Config) { c.Shards = shards })
			owns(m, shards.Len())
			time.Sleep(10 * time.Second)
			began := time.Now()
			wg.Wait()
			at(proxy, "3", want)
			at(proxy, "1", 200)
			at(redirect, "1", 307)
			at(redirect, "3", map[int]int{200: 307, 404: 404}[want])
			if waited := time.Since(began); waited > 0 {
				t.Errorf("with %d shards: after %v", shards.Len(), waited)
			}
			if n := map[int]int{200: 2, 404: 1}[want]; proxy.Known() != n {
				t.Errorf("with %d shards: %d proxies, want %d", shards.Len(), proxy.Known(), n)
			}
			leave(t, m)
		}
		router.Close()
	})
}
