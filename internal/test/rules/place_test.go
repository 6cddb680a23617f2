//go:build go1.25

package rules

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// The first line of a campaign says which record it is about, as far as that is known before the
// store was asked; what the first answer adds is said once.
func TestLogNamesThePlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		err := le.Config{Decider: &resolving{RaceDecider: memory.NewDecider()}, LeaderID: "a", Logger: slog.New(slog.NewTextHandler(&log, nil))}.
			Run(t.Context(), func(context.Context, *le.TimeView) error {
				sleep(le.DefaultTermLength)
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(log.String(), "\n")
		if !strings.Contains(first, "campaign started") || !strings.Contains(first, `place="table e"`) {
			t.Errorf("the first line is %s", first)
		}
		if n := strings.Count(log.String(), `place="host h, table s.e"`); n != 1 {
			t.Errorf("the place that was found is told %d times:\n%s", n, log.String())
		}
	})
}

// resolving is a decider that knows its place only when the store has answered.
type resolving struct {
	le.RaceDecider
	found atomic.Bool
}

func (r *resolving) String() string {
	if r.found.Load() {
		return "host h, table s.e"
	}
	return "table e"
}

func (r *resolving) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	defer r.found.Store(true)
	return r.RaceDecider.ReadCurrent(ctx)
}
