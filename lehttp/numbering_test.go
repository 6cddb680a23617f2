//go:build go1.25

package lehttp_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/lehttp"
	"github.com/c8e606e4/leaderelection/shard"
)

// A request that was routed by another number of shards than the group has is refused by router
// and owner: by that its key's shard is another one, of the same name.
func TestShardOfAnotherNumbering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		router := g.router()
		var work http.Handler
		m := g.member("a", func(m *shard.Member) http.Handler {
			work = lehttp.RequireOwner(m, byHeader, nil)(says("served"))
			return work
		})
		owns(m, 4)
		time.Sleep(time.Minute)
		proxy := router.Proxy(byHeader, &lehttp.ProxyOptions{Wait: -1, Transport: g})
		for name, want := range map[string][2]int{"1": {200, 200}, "1/4": {200, 200}, "1/9": {503, 404}, "1/": {503, 404}, "4/4": {503, 404}} {
			for i, h := range []http.Handler{work, proxy} {
				if w := through(h, "GET", name); w.Code != want[i] {
					t.Errorf("%s: %d by the %s, want %d", name, w.Code, []string{"owner", "proxy"}[i], want[i])
				}
			}
		}
		shardOf := lehttp.ShardKey(9, func(*http.Request) string { return "a key" })
		if name := shardOf(httptest.NewRequest("GET", "/", nil)); name != strconv.Itoa(shard.ForKey("a key", 9))+"/9" {
			t.Errorf("ShardKey names %q", name)
		}
		leave(t, m)
		router.Close()
	})
}
