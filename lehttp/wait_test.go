//go:build go1.25

package lehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/lehttp"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// By default a request waits for twice the term in the record, and a second: for a drain of a term and
// a hand-over on a polled store, and for a crash. So it does for a redirect, and at a group's routers.
func TestWaitFollowsFromTheTerm(t *testing.T) {
	leftBehind := vacant(1)
	leftBehind.TermLength = 4 * time.Second
	for name, c := range map[string]struct {
		known *le.RaceEntry
		wait  time.Duration // that was set
		want  time.Duration
	}{
		"a term of 4 s":         {&leftBehind, 0, 9 * time.Second},
		"the term is not known": {nil, 0, 31 * time.Second},
		"set":                   {&leftBehind, time.Second, time.Second},
		"none":                  {&leftBehind, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
				if c.known != nil {
					r.News(*c.known)
				}
				proxy := r.Proxy(&lehttp.ProxyOptions{Wait: c.wait})
				defer proxy.Close()
				handlers := map[string]http.Handler{"proxy": proxy, "redirect": r.Redirect(&lehttp.RedirectOptions{Wait: c.wait})}
				if c.known == nil {
					group := lehttp.NewShardRouter(nil)
					one := group.Proxy(byHeader, &lehttp.ProxyOptions{Wait: c.wait})
					defer one.Close()
					handlers["a group's proxy"] = one
					handlers["a group's redirect"] = group.Redirect(byHeader, &lehttp.RedirectOptions{Wait: c.wait})
				}
				for which, h := range handlers {
					begin := time.Now()
					req := httptest.NewRequest(http.MethodPost, "/", nil)
					req.Header.Set("Shard", "1")
					w := httptest.NewRecorder()
					h.ServeHTTP(w, req)
					if took := time.Since(begin); took != c.want || w.Code != http.StatusServiceUnavailable {
						t.Errorf("%s: %d after %v, want 503 after %v", which, w.Code, took, c.want)
					}
				}
			})
		})
	}
}

// A redirect waits for the next leader. If this process becomes that, the answer sends the client here
// once more. A request that another Proxy keeps does not wait.
func TestRedirectWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
		r.News(record(1, "me", "me:80"))
		me := &standing{l: &leads{view: viewtest.New(nil, 0), status: le.Draining}}
		called := false
		h := lehttp.RequireLeader(me, &lehttp.RequireOptions{Otherwise: r.Redirect(&lehttp.RedirectOptions{LeaderID: "me"})})(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
		ask := func(sentBy string) (string, int, time.Duration) {
			begin := time.Now()
			req := httptest.NewRequest(http.MethodPost, "http://front/x?y", strings.NewReader("x"))
			if sentBy != "" {
				req.Header.Set("Leaderelection-Sent-By", sentBy)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			return w.Header().Get("Location"), w.Code, time.Since(begin)
		}
		time.AfterFunc(3*time.Second, func() { r.News(vacant(1)) })
		time.AfterFunc(5*time.Second, func() { r.News(record(2, "b", "b:80")) })
		if to, code, took := ask(""); to != "http://b:80/x?y" || code != http.StatusTemporaryRedirect || took != 5*time.Second {
			t.Errorf("%d to %q after %v", code, to, took)
		}
		r.News(vacant(2))
		if _, code, took := ask("proxy; election=users"); code != http.StatusServiceUnavailable || took != 0 {
			t.Errorf("what a Proxy keeps: %d after %v", code, took)
		}
		time.AfterFunc(5*time.Second, me.lead)
		if to, code, took := ask(""); to != "http://front/x?y" || code != http.StatusTemporaryRedirect || took < 5*time.Second || took > 6*time.Second || called {
			t.Errorf("%d to %q after %v; the handler was called: %v", code, to, took, called)
		}
	})
}

// The default Wait covers a crash, on a polled store: what waits for the dead leader gets to the next.
func TestDefaultWaitCoversACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New(nil)
		ctx, stop := context.WithCancel(t.Context())
		dying := d.Handle()
		var campaigns []*le.Campaign
		for _, id := range []string{"a", "b"} {
			store := d.Handle().Polled()
			if id == "a" {
				store = dying.Polled()
			}
			c, err := le.Config{Decider: store, LeaderID: id, HostPort: []string{id + ":80"}, MaxClockSkew: S}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			campaigns = append(campaigns, c)
			if id == "a" {
				for !c.View().ValueInFuture() {
					time.Sleep(time.Second)
				}
			}
		}
		router, err := lehttp.Follow(le.WatchConfig{Decider: d.Handle().Polled(), MaxClockSkew: S})
		if err != nil {
			t.Fatal(err)
		}
		proxy := router.Proxy(&lehttp.ProxyOptions{Transport: proxyTransport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "a:80" {
				return nil, gone
			}
			return answering(), nil
		})})
		defer proxy.Close()
		time.Sleep(time.Minute)
		dying.Inject(memory.LoseRequests()) // nothing is heard of it
		begin := time.Now()
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x")))
		if took := time.Since(begin); w.Code != http.StatusOK || took < 5*time.Second {
			t.Errorf("%d after %v", w.Code, took)
		}
		stop()
		for _, c := range campaigns {
			<-c.Done()
		}
		router.Close()
	})
}

// A router outlives the campaign of its process: what comes while that drains, and after its end, waits
// for the next leader and goes there. And a process that wins serves what waits in it, though its router
// has not heard of that yet.
func TestTheRouterOutlivesItsCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New(nil)
		polled := func() le.RaceDecider { return d.Handle().Polled() }
		next := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, le.ViewFrom(r.Context()).ElectionNumber()) }
		handlers := map[string]http.Handler{}
		start := func(id string) (*le.Campaign, context.CancelFunc, *lehttp.Router) {
			ctx, stop := context.WithCancel(t.Context())
			c, err := le.Config{Decider: polled(), LeaderID: id, HostPort: []string{id + ":80"}, MaxClockSkew: S}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			router, err := lehttp.Follow(le.WatchConfig{Decider: polled(), MaxClockSkew: S})
			if err != nil {
				t.Fatal(err)
			}
			p := router.Proxy(&lehttp.ProxyOptions{LeaderID: id, Transport: proxyTransport(func(r *http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				handlers[r.URL.Host].ServeHTTP(w, r)
				return w.Result(), nil
			})})
			handlers[id+":80"] = lehttp.RequireLeader(c, &lehttp.RequireOptions{Otherwise: p})(http.HandlerFunc(next))
			return c, stop, router
		}
		a, stopA, routerA := start("a")
		time.Sleep(time.Minute)
		b, stopB, routerB := start("b")
		time.Sleep(time.Minute)
		ask := func(id string) (int, time.Duration) {
			begin := time.Now()
			w := httptest.NewRecorder()
			handlers[id+":80"].ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x")))
			return w.Code, time.Since(begin)
		}
		stopA()
		<-a.Done()
		released := time.Now()
		won := make(chan time.Duration, 1)
		go func() {
			for !b.View().ValueInFuture() {
				time.Sleep(10 * time.Millisecond)
			}
			won <- time.Since(released)
		}()
		var both sync.WaitGroup
		both.Go(func() {
			if code, took := ask("b"); code != http.StatusOK || took > <-won+200*time.Millisecond {
				t.Errorf("at the process that wins: %d after %v", code, took)
			}
		})
		if code, _ := ask("a"); code != http.StatusOK {
			t.Errorf("at the process whose campaign has ended: %d", code)
		}
		both.Wait()
		routerA.Close()
		stopB()
		<-b.Done()
		routerB.Close()
	})
}
