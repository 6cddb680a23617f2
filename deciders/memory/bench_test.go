//go:build go1.25

package memory_test

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// What an extension costs, with everything in the record that there may be.
func BenchmarkWrite(b *testing.B) {
	d := memory.NewDecider()
	e := &leaderelection.RaceEntry{
		LeaderID: "a", HostPort: []string{"10.0.0.1:443", "[fd00::1]:443"}, ConnectionParams: make([]byte, 64),
		TermExpiry: time.Now(), TermLength: 15 * time.Second, ElectionNumber: 1, Incarnation: "i",
	}
	b.ReportAllocs()
	for b.Loop() {
		token, err := d.WriteEntry(b.Context(), e)
		if err != nil {
			b.Fatal(err)
		}
		e.Token = token
		e.Extension++
	}
}

func BenchmarkRead(b *testing.B) {
	d := memory.NewDecider()
	write(b, d, nil, leaderelection.RaceEntry{LeaderID: "a", HostPort: []string{"10.0.0.1:443"}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.ReadCurrent(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
