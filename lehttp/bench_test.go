//go:build unix && go1.25

package lehttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// The figures of the package come from here:
//
//	go test -run '^$' -bench RequireLeader -count 5 -cpu 1 ./lehttp
//	go test -run '^$' -bench Proxy -count 10 ./lehttp
//	go test -run '^$' -bench Notice -benchtime 200x ./lehttp

// blackHole is a ResponseWriter that costs nothing.
type blackHole struct{ h http.Header }

func (b *blackHole) Header() http.Header         { return b.h }
func (b *blackHole) Write(p []byte) (int, error) { return len(p), nil }
func (b *blackHole) WriteHeader(int)             {}

var hello = []byte("hello")

// BenchmarkRequireLeader is what the middleware adds to a handler that does
// next to nothing: compare with bare.
func BenchmarkRequireLeader(b *testing.B) {
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(hello) })
	elected := make(chan struct{})
	campaign, err := le.Config{
		Decider: memory.NewDecider(), LeaderID: "a", TermLength: time.Hour,
		OnElected: func(context.Context, *le.TimeView) { close(elected) },
	}.Start(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	<-elected
	for campaign.Status() != le.Leading {
	}
	for _, c := range []struct {
		name, method string
		h            http.Handler
	}{
		{"bare", http.MethodGet, app},
		{"GET", http.MethodGet, lehttp.RequireLeader(campaign, nil)(app)},
		{"POST", http.MethodPost, lehttp.RequireLeader(campaign, nil)(app)},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := &blackHole{h: http.Header{}}
			r := httptest.NewRequest(c.method, "/", nil)
			b.ReportAllocs()
			var n int64
			begin := cpuTime(b)
			for b.Loop() {
				c.h.ServeHTTP(w, r)
				n++
			}
			b.ReportMetric(float64(cpuTime(b)-begin)/float64(n), "cpu-ns/op")
		})
	}
}

// cpuTime is what this process has used of the processors: the figure that holds
// on a machine that does other things as well.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkProxy is a request through the Proxy and through httputil's alone,
// by turns, so that whatever else the machine does meets both.
func BenchmarkProxy(b *testing.B) {
	leader := server(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(hello) }))
	target, err := url.Parse(leader.URL)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 128, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	e := record(1, "a", address(leader))
	e.TermExpiry = time.Now().Add(time.Hour)
	r.News(e)
	c := client(b)
	fronts := []string{
		server(b, &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetXForwarded()
			r.SetURL(target)
		}}).URL,
		proxy(b, r, &lehttp.ProxyOptions{Transport: transport}).URL,
	}
	took := make([][]time.Duration, len(fronts))
	for i := 0; b.Loop(); i++ {
		which := i % len(fronts)
		begin := time.Now()
		res, err := c.Get(fronts[which])
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		took[which] = append(took[which], time.Since(begin))
	}
	if len(took[1]) == 0 {
		return
	}
	median := func(d []time.Duration) float64 { slices.Sort(d); return float64(d[len(d)/2]) }
	alone, ours := median(took[0]), median(took[1])
	b.ReportMetric(alone, "alone-ns")
	b.ReportMetric(ours, "proxy-ns")
	b.ReportMetric(100*(ours-alone)/alone, "%more")
}

// BenchmarkNotice is how long after a graceful hand-over's new leader was
// elected a router knows it, on a store that pushes.
func BenchmarkNotice(b *testing.B) {
	d := memory.NewDecider()
	x, y := join(b, b.Context(), d, "a"), join(b, b.Context(), d, "b")
	router, err := lehttp.Follow(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S})
	if err != nil {
		b.Fatal(err)
	}
	defer router.Close()
	leader, next := x, y
	select {
	case <-x.elected:
	case <-y.elected:
		leader, next = y, x
	}
	var took, whole []time.Duration
	for b.Loop() {
		begin := time.Now()
		if err := le.Transfer(b.Context(), d, next.id); err != nil {
			b.Fatal(err)
		}
		at := <-next.elected
		for {
			if e, led := router.Leader(); led && e.LeaderID == next.id {
				break
			}
		}
		took, whole = append(took, time.Since(at)), append(whole, time.Since(begin))
		leader, next = next, leader
	}
	slices.Sort(took)
	slices.Sort(whole)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-µs")
	b.ReportMetric(float64(whole[len(whole)/2].Microseconds()), "handover-µs")
	b.StopTimer()
}
