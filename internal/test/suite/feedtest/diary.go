package feedtest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// diary keeps what an observer did and when, for the report of a test that fails.
type diary struct {
	mu    sync.Mutex
	since time.Time
	lines []string
}

// begin forgets what was before.
func (d *diary) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since, d.lines = time.Now(), nil
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%8v ", time.Since(d.since).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (d *diary) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "\n" + strings.Join(d.lines, "\n")
}

// trace returns what keeps it.
func (d *diary) trace() *leaderelection.Trace {
	return &leaderelection.Trace{
		StoreOp: func(op leaderelection.StoreOp) {
			d.note("%s took %v, abandoned %v: %v", op.Kind, op.Duration.Round(time.Millisecond), op.Abandoned, op.Err)
		},
		Feed: func(f leaderelection.FeedEvent) { d.note("feed: %v", f.Err) },
		News: func(e leaderelection.RaceEntry) { d.note("news of number %d", e.ElectionNumber) },
	}
}
