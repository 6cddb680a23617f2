//go:build go1.25

package leaderelection_test

import (
	"slices"
	"testing"
	"testing/synctest"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Whoever hears that a leadership has begun has heard of its record and of its view: metrics
// would say otherwise that nobody leads.
func TestTraceTellsOfTheViewBeforeTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []string
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *le.Config) {
			c.Trace = &le.Trace{
				News:          func(e le.RaceEntry) { told = append(told, "news of "+e.LeaderID) },
				Extended:      func(e le.ViewExtended) { told = append(told, "view") },
				StatusChanged: func(s le.StatusChange) { told = append(told, s.To.String()) },
			}
		})
		synctest.Wait()
		a.quit()
		synctest.Wait()
		want := []string{"news of ", "news of a", "view", "leading", "draining"}
		if len(told) < len(want) || !slices.Equal(told[:len(want)], want) {
			t.Errorf("told %q, want %q first", told, want)
		}
	})
}
