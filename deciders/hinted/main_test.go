package hinted_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/hinted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is a record of a term of 15 s.
func entry(number, extension uint64) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID: "a", Incarnation: "i", TermExpiry: time.Now().Add(15 * time.Second), TermLength: 15 * time.Second,
		ElectionNumber: leaderelection.ElectionNumber(number), Extension: extension,
	}
}

// silent is a source from which nothing comes.
func silent(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// news is what a feed yields, and when.
type news struct {
	*leaderelection.RaceEntry
	err error
	at  time.Time
}

// follow runs a feed, and returns what it yields; the channel is closed when it has
// ended.
func follow(ctx context.Context, d *hinted.Decider) <-chan news {
	out := make(chan news, 1000)
	go func() {
		defer close(out)
		for e, err := range d.Changes(ctx) {
			out <- news{e, err, time.Now()}
		}
	}()
	return out
}
