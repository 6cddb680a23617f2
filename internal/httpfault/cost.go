package httpfault

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Record is an ordinary one, of a candidate with two addresses.
func Record() *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID: "worker-1.batch.example.com", HostPort: []string{"10.20.30.40:8443", "[fd00:1234:5678::40]:8443"},
		TermExpiry: time.Now().UTC(), TermLength: 15 * time.Second, ElectionNumber: 7, Extension: 12, Incarnation: "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
	}
}

// Extends returns what writes a record, and then extends it again and again.
func Extends(d leaderelection.RaceDecider) func() error {
	e := Record()
	return func() (err error) {
		e.Token, err = d.WriteEntry(context.Background(), e)
		e.Extension++
		return err
	}
}

// Pair is one request, made by the store's client alone and by the decider: what
// the decider itself costs is the difference.
type Pair struct{ SDK, Decider func() error }

// Bytes fails where the decider allocates more than a fifth more than the client
// by itself. Not under the race detector, which allocates too.
func (p Pair) Bytes(t *testing.T) {
	t.Helper()
	sdk, decider := allocated(t, p.SDK), allocated(t, p.Decider)
	t.Logf("%d bytes, of which the client's %d: %.1f%% more", decider, sdk, 100*float64(decider-sdk)/float64(sdk))
	if decider > sdk+sdk/5 {
		t.Errorf("%d bytes, the client alone takes %d", decider, sdk)
	}
}

// allocated returns the bytes that a call allocates, server and all: the least of five means, since
// whatever else runs only adds to them. The first one warms up.
func allocated(t *testing.T, call func() error) int64 {
	t.Helper()
	const n = 300
	least := int64(math.MaxInt64)
	for range 6 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		least = min(least, int64(after.TotalAlloc-before.TotalAlloc)/n)
	}
	return least
}
