//go:build go1.25

package lehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
	"github.com/c8e606e4/leaderelection/shard"
)

// byHeader names a request's shard.
func byHeader(r *http.Request) string { return r.Header.Get("Shard") }

// group is a group whose members serve HTTP in this process, in virtual time.
type group struct {
	memgroup.Records
	t     *testing.T
	mu    sync.Mutex
	hosts map[string]http.Handler // what answers at an address
}

func newGroup(t *testing.T) *group {
	return &group{t: t, hosts: map[string]http.Handler{}}
}

// RoundTrip has the handler at the request's address answer it.
func (g *group) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	h := g.hosts[r.URL.Host]
	g.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("nobody is at %q", r.URL.Host)
	}
	in := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.Path, r.Body)
	in.Header = r.Header.Clone()
	return asked(h, in).Result(), r.Context().Err()
}

// member joins, and serves at "ID:80" what serve makes of it.
func (g *group) member(id string, serve func(*shard.Member) http.Handler, change ...func(*shard.Config)) *shard.Member {
	g.t.Helper()
	cfg := shard.Config{
		Store: g.Store, MemberID: id, Shards: shard.Numbered(4), MaxClockSkew: time.Second, HostPort: []string{id + ":80"},
		OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
	}
	for _, c := range change {
		c(&cfg)
	}
	m := must(cfg.Start(context.Background()))(g.t)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosts[id+":80"] = serve(m)
	return m
}

// withAMember runs a test of a group whose only member, a, owns all four shards, which a router knows.
func withAMember(t *testing.T, serve func(*shard.Member) http.Handler, test func(t *testing.T, g *group, router *lehttp.ShardRouter)) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		m, router := g.member("a", serve), g.router()
		owns(m, 4)
		time.Sleep(10 * time.Second)
		test(t, g, router)
		leave(t, m)
		router.Close()
	})
}

// router follows the group until it is closed.
func (g *group) router() *lehttp.ShardRouter {
	g.t.Helper()
	r := must(lehttp.FollowShards(shard.WatchConfig{Store: g.Store}))(g.t)
	return r
}

func owns(m *shard.Member, n int) {
	for len(m.Owned()) != n {
		time.Sleep(100 * time.Millisecond)
	}
}

func leave(t *testing.T, members ...*shard.Member) {
	t.Helper()
	for _, m := range members {
		if err := m.Leave(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// answersAs answers with the member's id, and the shard and its token.
func answersAs(id string, worked *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := shard.OwnedFrom(r.Context())
		worked.Add(1)
		fmt.Fprintf(w, "%s %s %d", id, o.Name(), o.ElectionNumber())
	})
}

func through(h http.Handler, method, shard string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/", nil)
	r.Header.Set("Shard", shard)
	return asked(h, r)
}

// Each request reaches the owner of its shard, also while shards move: it is kept until the
// next owner is there, and worked on once. The router says how many shards there are.
func TestShardsAreRouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		var worked atomic.Int64
		serve := func(id string) func(*shard.Member) http.Handler {
			return func(m *shard.Member) http.Handler {
				return lehttp.RequireOwner(m, byHeader, nil)(answersAs(id, &worked))
			}
		}
		router := g.router()
		proxy := router.Proxy(byHeader, &lehttp.ProxyOptions{Transport: g})
		if w := through(proxy, "GET", "1"); w.Code != http.StatusServiceUnavailable || router.Assignment().Of() != 0 {
			t.Errorf("before there is a group: %d %s, %d shards", w.Code, w.Body, router.Assignment().Of())
		}
		a, b := g.member("a", serve("a")), g.member("b", serve("b"))
		owns(a, 2)
		owns(b, 2)
		time.Sleep(10 * time.Second)
		for _, name := range []string{"0", "1", "2", "3"} {
			o, _ := router.Assignment().Owner(name)
			id := o.Member
			if w := through(proxy, "GET", name); w.Code != http.StatusOK || w.Body.String() != fmt.Sprintf("%s %s %d", id, name, o.Token) {
				t.Errorf("shard %s of %s: %d %q", name, id, w.Code, w.Body)
			}
		}
		if n := router.Assignment().Of(); n != 4 { // by which shard.KeyName says what key is whose
			t.Errorf("%d shards, want 4", n)
		}
		for name, code := range map[string]int{"": 400, "4": 404, "01": 404, "x": 404} {
			if w := through(proxy, "GET", name); w.Code != code {
				t.Errorf("shard %q: %d %s, want %d", name, w.Code, w.Body, code)
			}
		}
		// Everything goes to a: no request is lost, and none is worked on twice.
		worked.Store(0)
		var wg sync.WaitGroup
		for i := range 400 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				if w := through(proxy, "POST", fmt.Sprint(i%4)); w.Code != http.StatusOK {
					t.Errorf("%d: %d %s", i, w.Code, w.Body)
				}
			})
		}
		time.Sleep(time.Second)
		leave(t, b)
		wg.Wait()
		if n := worked.Load(); n != 400 {
			t.Errorf("400 requests were worked on %d times", n)
		}
		if w := through(proxy, "GET", "3"); !strings.HasPrefix(w.Body.String(), "a 3 ") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		leave(t, a)
		if w := through(proxy, "GET", "3"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
			t.Errorf("after all have left: %d %s, %v", w.Code, w.Body, w.Header())
		}
		router.Close()
	})
}

// RequireOwner refuses what is not owned, serves what was begun before a shard is to go, and
// throws away an answer that comes too late.
func TestRequireOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		var cut atomic.Bool
		lose := memory.LoseRequests()
		work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d, _ := time.ParseDuration(r.Header.Get("Takes"))
			time.Sleep(d)
			fmt.Fprint(w, "done")
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<14)); r.Header.Get("Lost") != "" && !errors.Is(err, le.ErrNotLeading) {
				t.Errorf("written after the end: %v", err)
			}
		})
		m := g.member("a", func(m *shard.Member) http.Handler {
			return lehttp.RequireOwner(m, byHeader, &lehttp.RequireOptions{Election: "g"})(work)
		},
			func(c *shard.Config) {
				c.Store = g.With(func(op memory.Op) memory.Fault {
					if cut.Load() {
						return lose(op)
					}
					return memory.Fault{}
				})
				c.OnOwned = func(ctx context.Context, _ *shard.Owned) error {
					<-ctx.Done()
					time.Sleep(5 * time.Second)
					return nil
				}
			})
		h := g.hosts["a:80"]
		if w := through(h, "GET", "0"); w.Code != 503 || w.Header().Get("Leaderelection-Not-Leading") != "refused; election=g%2F0" {
			t.Errorf("before it owns any: %d %s %v", w.Code, w.Body, w.Header())
		}
		if w := through(h, "GET", ""); w.Code != 400 {
			t.Errorf("no shard: %d %s", w.Code, w.Body)
		}
		owns(m, 4)
		if w := through(h, "POST", "0"); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		takes := func(d time.Duration, more string) *httptest.ResponseRecorder {
			r := post()
			r.Header.Set("Shard", "1")
			r.Header.Set("Takes", d.String())
			r.Header.Set("Lost", more)
			return asked(h, r)
		}
		// Cut off from the store for longer than the term: the answer comes too late.
		cut.Store(true)
		if w := takes(30*time.Second, "yes"); w.Code != 503 || !strings.Contains(w.Body.String(), "ceased to own") || w.Header().Get("Leaderelection-Not-Leading") != "lost; election=g%2F1" {
			t.Errorf("too late: %d %s %v", w.Code, w.Body, w.Header())
		}
		cut.Store(false)
		owns(m, 4)
		// It leaves: what is under way ends, and nothing new is served.
		var wg sync.WaitGroup
		wg.Go(func() {
			if w := takes(3*time.Second, ""); w.Code != 200 {
				t.Errorf("under way: %d %s", w.Code, w.Body)
			}
		})
		time.Sleep(time.Second)
		wg.Go(func() { leave(t, m) })
		time.Sleep(time.Second)
		if w := through(h, "POST", "1"); w.Code != 503 {
			t.Errorf("new while it leaves: %d %s", w.Code, w.Body)
		}
		wg.Wait()
	})
}

// A process that is a member and passes on what is not its own serves what it comes to own
// while the request waits.
func TestRequireOwnerComesHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		router := g.router()
		var worked atomic.Int64
		m := g.member("a", func(m *shard.Member) http.Handler {
			elsewhere := router.Proxy(byHeader, &lehttp.ProxyOptions{Transport: g, LeaderID: "a", Wait: time.Minute})
			return lehttp.RequireOwner(m, byHeader, &lehttp.RequireOptions{Otherwise: elsewhere})(answersAs("a", &worked))
		})
		w := through(g.hosts["a:80"], "POST", "2")
		owned, _ := m.Shard("2")
		if want := fmt.Sprint("a 2 ", uint64(owned.ElectionNumber())); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%d %q, want %q", w.Code, w.Body, want)
		}
		if worked.Load() != 1 {
			t.Errorf("worked on %d times", worked.Load())
		}
		leave(t, m)
		router.Close()
	})
}

// What the owner of one shard has relayed of another shard's refusal is an answer of its
// own: the request was worked on.
func TestShardsRefusalsAreTheirOwn(t *testing.T) {
	var worked atomic.Int64
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // without RequireOwner
		worked.Add(1)
		w.Header().Set("Leaderelection-Not-Leading", "refused; election=%2F1")
		w.WriteHeader(503)
	})
	withAMember(t, func(*shard.Member) http.Handler { return bare }, func(t *testing.T, g *group, router *lehttp.ShardRouter) {
		proxy := router.Proxy(byHeader, &lehttp.ProxyOptions{Transport: g})
		if w := through(proxy, "POST", "2"); w.Code != 503 || worked.Load() != 1 {
			t.Errorf("%d; worked on %d times, want once", w.Code, worked.Load())
		}
		worked.Store(0)
		if through(proxy, "POST", "1"); worked.Load() < 2 {
			t.Errorf("refused by the shard's own owner, it was sent %d times, want more until Wait is over", worked.Load())
		}
	})
}

// A request that was routed by another number of shards than the group has is refused by router
// and owner: by that its key's shard is another one, of the same name.
func TestShardOfAnotherNumbering(t *testing.T) {
	withAMember(t, func(m *shard.Member) http.Handler {
		return lehttp.RequireOwner(m, byHeader, nil)(says("served"))
	}, func(t *testing.T, g *group, router *lehttp.ShardRouter) {
		proxy := router.Proxy(byHeader, &lehttp.ProxyOptions{Wait: -1, Transport: g})
		for name, want := range map[string][2]int{"1": {200, 200}, "1/4": {200, 200}, "1/9": {503, 404}, "1/": {503, 404}, "4/4": {503, 404}} {
			for i, h := range []http.Handler{g.hosts["a:80"], proxy} {
				if w := through(h, "GET", name); w.Code != want[i] {
					t.Errorf("%s: %d by the %s, want %d", name, w.Code, []string{"owner", "proxy"}[i], want[i])
				}
			}
		}
		shardOf := lehttp.ShardKey(9, func(*http.Request) string { return "a key" })
		if name := shardOf(get()); name != strconv.Itoa(shard.ForKey("a key", 9))+"/9" {
			t.Errorf("ShardKey names %q", name)
		}
	})
}

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

// A wrong WatchConfig is refused at once.
func TestFollowShardsRefuses(t *testing.T) {
	if r, err := lehttp.FollowShards(shard.WatchConfig{}); r != nil || err == nil || !strings.Contains(err.Error(), "Store is nil") {
		t.Errorf("%v, %v", r, err)
	}
}

// Until an assignment is known a request waits only if its client's going away would be noticed.
func TestShardsUnknownYet(t *testing.T) {
	for name, c := range map[string]struct {
		body, sent string
		major      int
		took       time.Duration
	}{
		"no body":               {"", "", 1, time.Minute},
		"a body":                {"payload", "", 1, 0},
		"a body, HTTP/2":        {"payload", "", 2, time.Minute},
		"another Proxy sent it": {"", "proxy", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := lehttp.NewShardRouter().Proxy(byHeader, &lehttp.ProxyOptions{Wait: time.Minute})
				defer p.Close()
				r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
				r.ProtoMajor = c.major
				r.Header.Set("Shard", "2")
				if c.sent != "" {
					r.Header.Set("Leaderelection-Sent-By", c.sent)
				}
				begin := time.Now()
				w := asked(p, r)
				if took := time.Since(begin); w.Code != http.StatusServiceUnavailable || took != c.took {
					t.Errorf("%d after %v", w.Code, took)
				}
			})
		})
	}
}
