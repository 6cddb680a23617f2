package cli

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Only a job that runs, and whose hold would keep everybody else out, is left alone.
func TestMayHandOver(t *testing.T) {
	a := &app{}
	a.common.skew = time.Second
	for name, c := range map[string]struct {
		record  leaderelection.RaceEntry
		to      string
		force   bool
		refused bool
	}{
		"a job":                 {leaderelection.RaceEntry{LeaderID: "a", Hold: time.Hour}, "b", false, true},
		"a job, and anybody":    {leaderelection.RaceEntry{LeaderID: "a", Hold: time.Hour}, leaderelection.AnySuccessor, false, true},
		"a job, all the same":   {leaderelection.RaceEntry{LeaderID: "a", Hold: time.Hour}, leaderelection.AnySuccessor, true, false},
		"a job, by force":       {leaderelection.RaceEntry{LeaderID: "a", Hold: time.Hour}, "b", true, true},
		"to who leads":          {leaderelection.RaceEntry{LeaderID: "a", Hold: time.Hour}, "a", false, false},
		"no job":                {leaderelection.RaceEntry{LeaderID: "a"}, "b", false, false},
		"done":                  {leaderelection.RaceEntry{Hold: time.Hour}, "b", false, false},
		"dead":                  {leaderelection.RaceEntry{LeaderID: "a", Hold: time.Hour, TermExpiry: time.Now().Add(-time.Minute)}, "b", false, false},
		"dead, maybe, by clock": {leaderelection.RaceEntry{LeaderID: "a", Hold: time.Hour, TermExpiry: time.Now().Add(-time.Minute), Unsynchronized: true}, "b", false, true},
	} {
		if c.record.TermExpiry.IsZero() {
			c.record.TermExpiry = time.Now().Add(time.Minute)
		}
		if err := a.mayHandOver(&c.record, c.to, c.force); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
