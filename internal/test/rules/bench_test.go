//go:build go1.25

package rules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// The figures of internal/test/apart/bench/README.md ("What the library itself costs") come from here:
//
//	go test -run '^$' -bench . -benchtime 1x ./internal/test/rules                 # elections, in virtual time
//	go test -run '^$' -bench 'Now|ValueInFuture' -count 5 -cpu 1,2 ./internal/test/rules # the view

// BenchmarkNow is what ValueInFuture is to be compared with.
func BenchmarkNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = time.Now()
	}
}

func BenchmarkValueInFuture(b *testing.B) {
	v := viewtest.New(nil, 0)
	v.Set(time.Now().Add(24 * time.Hour))
	b.ReportAllocs()
	for b.Loop() {
		if !v.ValueInFuture() {
			b.Fatal("over")
		}
	}
}

// BenchmarkValueInFutureParallel: the same, from many goroutines at once, on one view.
func BenchmarkValueInFutureParallel(b *testing.B) {
	v := viewtest.New(nil, 0)
	v.Set(time.Now().Add(24 * time.Hour))
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !v.ValueInFuture() {
				b.Fatal("over")
			}
		}
	})
}

// inBubble runs f in virtual time on behalf of a benchmark, which has no
// synctest of its own.
func inBubble(b *testing.B, name string, f func(t *testing.T)) {
	b.Helper()
	ok := testing.RunTests(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: name, F: func(t *testing.T) { synctest.Test(t, f) }}})
	if !ok {
		b.Fatal("failed")
	}
}

// sorted returns the q-quantile of d.
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// BenchmarkCrashFailover: five candidates, one dies at a random instant; how long
// until another one leads. In virtual time: 1,000 crashes.
func BenchmarkCrashFailover(b *testing.B) {
	for _, kind := range []string{"feed", "poll"} {
		b.Run(kind, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				rng := rand.New(rand.NewPCG(1, 2))
				for round := range 100 {
					inBubble(b, fmt.Sprint(kind, round), func(t *testing.T) {
						took = append(took, crashes(t, kind, rng, 10)...)
					})
				}
			}
			b.ReportMetric(quantile(took, 0.5).Seconds()/T.Seconds(), "median-terms")
			b.ReportMetric(quantile(took, 0.99).Seconds()/T.Seconds(), "p99-terms")
			b.ReportMetric(quantile(took, 1).Seconds()/T.Seconds(), "max-terms")
			b.ReportMetric(float64(len(took))/float64(b.N), "crashes/op")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// crashes kills n leaders one after the other, each at a random instant of its
// leadership, and brings it back as a standby when the next one leads.
func crashes(t *testing.T, kind string, rng *rand.Rand, n int) []time.Duration {
	d := memory.NewDecider()
	adjust := func(c *config) {
		c.Trace = nil
		c.Decider.(*memory.Decider).Inject(memory.Slow(5 * time.Millisecond))
		if kind == "poll" {
			polled(c)
		}
	}
	members := make([]*member, 5)
	start := func(i int) { members[i] = join(t, d, fmt.Sprint("c", i), adjust) }
	for i := range members {
		start(i)
		time.Sleep(time.Duration(rng.Int64N(int64(T))))
	}
	leader := func() int {
		return slices.IndexFunc(members, func(m *member) bool { return m.View().ValueInFuture() })
	}
	var took []time.Duration
	for range n {
		for leader() < 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2*T + time.Duration(rng.Int64N(int64(T))))
		i := leader()
		if i < 0 {
			t.Fatal("no leader on a healthy store")
		}
		// Dead: nothing of it reaches the store any more.
		members[i].store.Inject(memory.LoseRequests())
		died := time.Now()
		dead := members[i]
		for {
			time.Sleep(time.Millisecond)
			if j := leader(); j >= 0 && j != i {
				break
			}
		}
		took = append(took, time.Since(died))
		dead.quit()
		start(i)
	}
	return took
}

// BenchmarkHandover: from the return of OnElected, after ctx was cancelled, to
// the next OnElected, on a store with a round trip of 10 ms.
func BenchmarkHandover(b *testing.B) {
	const trip = 10 * time.Millisecond
	for _, kind := range []string{"feed", "poll"} {
		b.Run(kind, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				inBubble(b, kind, func(t *testing.T) {
					d := memory.NewDecider()
					adjust := func(c *config) {
						c.Trace = nil
						c.Decider.(*memory.Decider).Inject(memory.Slow(trip))
						if kind == "poll" {
							polled(c)
						}
					}
					a := join(t, d, "a", adjust)
					sleep(time.Second)
					for range 100 {
						next := join(t, d, "a", adjust)
						time.Sleep(T + rand.N(T))
						a.quit()
						left := a.leadership(t, 0).done
						for next.count() == 0 {
							time.Sleep(time.Millisecond)
						}
						took = append(took, next.leadership(t, 0).from.Sub(left))
						a = next
					}
				})
			}
			wait := time.Duration(0)
			if kind == "poll" {
				wait = T / 2
			}
			b.ReportMetric(float64(quantile(took, 0.5))/float64(trip), "median-trips")
			b.ReportMetric(float64(quantile(took, 1)-wait)/float64(trip), "max-trips-past-poll")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkStoreOperations: what a leader and a standby ask of the store in a
// term, over 1,000 terms.
func BenchmarkStoreOperations(b *testing.B) {
	const terms = 1000
	for b.Loop() {
		inBubble(b, "ops", func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a")
			synctest.Wait()
			pushed, polls := join(t, d, "b"), join(t, d, "c", polled)
			sleep(T)
			begin := time.Now()
			sleep(terms * T)
			per := func(m *member, kinds ...le.OpKind) float64 {
				return float64(len(m.opsSince(begin, kinds...))) / terms
			}
			b.ReportMetric(per(a, le.OpExtend), "leader-writes/term")
			b.ReportMetric(per(a, le.OpRead), "leader-reads/term")
			b.ReportMetric(per(polls, le.OpRead), "polling-standby-reads/term")
			b.ReportMetric(per(polls, le.OpAcquire), "polling-standby-writes/term")
			b.ReportMetric(per(pushed), "pushed-standby-ops/term")
		})
	}
	b.ReportMetric(0, "ns/op")
}
