//go:build unix && go1.25

package lehttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

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
