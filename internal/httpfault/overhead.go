package httpfault

import (
	"slices"
	"testing"
	"time"
)

// Overhead measures what own costs on top of bare, which makes the same request
// by the store's client alone: by turns, so that a busy machine slows both, and
// by their medians. It reports both in nanoseconds, and the difference in
// percent of bare.
func Overhead(b *testing.B, bare, own func()) {
	b.Helper()
	clock := func(f func()) time.Duration {
		begun := time.Now()
		f()
		return time.Since(begun)
	}
	var bares, owns []time.Duration
	for n := 0; b.Loop(); n++ {
		if n%2 == 0 { // neither always comes first
			bares = append(bares, clock(bare))
			owns = append(owns, clock(own))
		} else {
			owns = append(owns, clock(own))
			bares = append(bares, clock(bare))
		}
	}
	slices.Sort(bares)
	slices.Sort(owns)
	x, y := float64(bares[len(bares)/2]), float64(owns[len(owns)/2])
	b.ReportMetric(x, "ns/bare")
	b.ReportMetric(y, "ns/own")
	b.ReportMetric(100*(y-x)/x, "%overhead")
	b.ReportMetric(0, "ns/op") // of the pair: no use
}
