//go:build unix && go1.25

package electiontest

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// cpu is the CPU time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkThousandCampaigns: one process with 1,000 campaigns, all of them
// leading elections of their own, or all standing by.
func BenchmarkThousandCampaigns(b *testing.B) {
	n := 1000
	if s := os.Getenv("CAMPAIGNS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	for _, role := range []string{"leader", "standby"} {
		for _, kind := range []string{"feed", "poll"} {
			b.Run(role+"/"+kind, func(b *testing.B) {
				for b.Loop() {
					inBubble(b, role+kind, func(t *testing.T) { thousand(t, b, role, kind, n) })
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func thousand(t *testing.T, b *testing.B, role, kind string, n int) {
	ctx, cancel := context.WithCancel(t.Context())
	deciders := make([]le.RaceDecider, n)
	for i := range deciders {
		d := memory.NewDecider()
		deciders[i] = d
		if kind == "poll" {
			deciders[i] = d.Polled()
		}
		if role == "standby" {
			e := rival(1)
			e.TermLength, e.TermExpiry = time.Hour, time.Now().Add(time.Hour)
			d.Replace(e)
		}
	}
	var leading atomic.Int64
	heap := func() (bytes uint64, goroutines int) {
		synctest.Wait()
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse, runtime.NumGoroutine()
	}
	before, g0 := heap()
	campaigns := make([]*le.Campaign, n)
	for i, d := range deciders {
		var err error
		campaigns[i], err = le.Config{
			Decider: d, LeaderID: "c" + strconv.Itoa(i), TermLength: T, MaxClockSkew: S,
			OnElected: func(context.Context, *le.TimeView) { leading.Add(1) },
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(T / time.Duration(n))
	}
	time.Sleep(T)
	synctest.Wait()
	if got := leading.Load(); role == "leader" && got != int64(n) || role == "standby" && got != 0 {
		t.Fatalf("%d lead", got)
	}
	after, g1 := heap()
	const minutes = 10
	used := cpu()
	time.Sleep(minutes * time.Minute)
	used = cpu() - used
	b.ReportMetric(float64(g1-g0)/float64(n), "goroutines/campaign")
	b.ReportMetric((float64(after)-float64(before))/float64(n)/1024, "KiB/campaign")
	b.ReportMetric(float64(used.Microseconds())/float64(n)/minutes, "µs-CPU/min")
	cancel()
	for _, c := range campaigns {
		<-c.Done()
	}
}
