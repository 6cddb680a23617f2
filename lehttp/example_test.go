//go:build go1.25

package lehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/lehttp"
	"github.com/c8e606e4/leaderelection/shard"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// A process that serves while it leads, and a proxy that finds it by the election.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	election := memory.NewDecider() // a real program uses a store that all can reach

	// The candidate. Its address is part of its Config, so the server comes first.
	app := http.NewServeMux()
	candidate := httptest.NewServer(app)
	defer candidate.Close()
	campaign, err := leaderelection.Config{
		Decider: election, LeaderID: "a", HostPort: []string{candidate.Listener.Addr().String()},
		OnElected: func(context.Context, *leaderelection.TimeView) {},
	}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	app.Handle("/", lehttp.RequireLeader(campaign, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s, by the leader", r.Method, r.URL.Path)
	})))

	// The proxy, anywhere. It keeps requests until there is a leader.
	decider := election.Handle() // the election, as this process sees it
	router, err := lehttp.Follow(leaderelection.WatchConfig{Decider: decider})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer router.Close()
	proxy := router.Proxy(nil)
	defer proxy.Close()
	front := httptest.NewServer(proxy)
	defer front.Close()

	res, err := http.Get(front.URL + "/orders/7")
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := io.ReadAll(res.Body)
	res.Body.Close()
	fmt.Println(res.StatusCode, string(text))

	http.DefaultClient.CloseIdleConnections()
	cancel()
	<-campaign.Done()
	// Output:
	// 200 GET /orders/7, by the leader
}

// A process that does not lead refuses, and reports whether the request was worked on.
func ExampleRequireLeader() {
	candidate := viewtest.NewCandidate(nil) // a campaign, in a real program
	candidate.Lead(7, time.Now().Add(time.Hour))
	handler := lehttp.RequireLeader(candidate, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			candidate.SetEnd(time.Now()) // the view ends while the handler works
		}
		fmt.Fprint(w, "done")
	}))
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPost} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		fmt.Println(method, w.Code, w.Body)
	}
	// Output:
	// GET 200 done
	// POST 503 this process has ceased to lead while it worked on the request, which may have taken effect
	//
	// POST 503 this process does not lead
}

// What a load balancer hears of a candidate that leads.
func ExampleProbes() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	campaign, err := leaderelection.Config{
		Decider: memory.NewDecider(), LeaderID: "a", // a real program uses a store that all can reach
	}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := campaign.Lead(ctx) // until it leads
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/election/", http.StripPrefix("/election", lehttp.Probes(campaign, nil)))
	for _, path := range []string{"/election/leader", "/election/standby", "/election/livez"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Print(path, " ", w.Code, " ", w.Body)
	}
	l.Release()
	cancel()
	<-campaign.Done()
	// Output:
	// /election/leader 200 leading
	// /election/standby 503 not standing by
	// /election/livez 200 alive
}

// A candidate that serves its application and its administration at ports of their own.
func ExampleNamed() {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the leader's administration") }))
	defer admin.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	election := memory.NewDecider() // a real program uses a store that all can reach
	campaign, err := leaderelection.Config{
		Decider: election, LeaderID: "a", HostPort: []string{"10.0.0.1:8080"},
		ConnectionParams: fmt.Appendf(nil, `{"addresses": {"admin": [%q]}}`, admin.Listener.Addr()),
	}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { cancel(); <-campaign.Done() }()
	router, err := lehttp.Follow(leaderelection.WatchConfig{Decider: election.Handle()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer router.Close()
	proxy := router.Proxy(&lehttp.ProxyOptions{Addresses: lehttp.Named("admin")})
	defer proxy.Close()
	w := httptest.NewRecorder()
	proxy.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Body)
	// Output: the leader's administration
}

// Two members of a group serve the shards that they own, and a proxy finds them.
func ExampleRequireOwner() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	records := map[string]*memory.Decider{} // of a real group: a bucket, a table, a database
	store := func(name string) (leaderelection.RaceDecider, error) {
		mu.Lock()
		defer mu.Unlock()
		if records[name] == nil {
			records[name] = memory.NewDecider()
		}
		return records[name].Handle(), nil
	}
	shardOf := lehttp.ShardKey(2, func(r *http.Request) string { return r.URL.Path })
	for _, id := range []string{"a", "b"} {
		app := http.NewServeMux()
		server := httptest.NewServer(app)
		defer server.Close()
		member, err := shard.Config{
			Store: store, MemberID: id, Shards: shard.Numbered(2), ClockPolicy: leaderelection.SharedClock, TermLength: time.Second,
			HostPort: []string{server.Listener.Addr().String()},
			OnOwned:  func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
		}.Start(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { <-member.Done() }()
		defer cancel()
		app.Handle("/", lehttp.RequireOwner(member, shardOf, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s, by the owner of shard %s", r.URL.Path, shard.OwnedFrom(r.Context()).Name())
		})))
	}
	router, err := lehttp.FollowShards(shard.WatchConfig{Store: store, ClockPolicy: leaderelection.SharedClock})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer router.Close()
	proxy := router.Proxy(shardOf, nil)
	defer proxy.Close()
	for _, path := range []string{"/customer-1", "/customer-3", "/customer-5"} {
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(w.Code, w.Body)
	}
	cancel()
	// Output:
	// 200 /customer-1, by the owner of shard 1
	// 200 /customer-3, by the owner of shard 0
	// 200 /customer-5, by the owner of shard 0
}
