//go:build go1.25

package lehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/lehttp"
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
		Decider: election, LeaderID: "a", HostPort: []string{candidate.Listener.Addr().String()}, MaxClockSkew: time.Second,
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
	router, err := lehttp.Follow(ctx, leaderelection.WatchConfig{Decider: election.Handle(), MaxClockSkew: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	proxy := router.Proxy(&lehttp.ProxyOptions{Wait: 10 * time.Second})
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
	<-router.Done()
	// Output:
	// 200 GET /orders/7, by the leader
}

// A process that does not lead refuses, and reports whether the request was worked on.
func ExampleRequireLeader() {
	view := leaderelection.NewTimeView(nil) // a campaign's View, in a real program
	view.Set(time.Now().Add(time.Hour))
	handler := lehttp.RequireLeader(leadership{view}, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			view.Set(time.Now()) // the view ends while the handler works
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

// leadership stands for a campaign.
type leadership struct{ view *leaderelection.TimeView }

func (l leadership) View() *leaderelection.TimeView { return l.view }
