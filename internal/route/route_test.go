package route_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// A leader is known for as long as its term can last: by its expiry where clocks
// can be compared, and for a term and the allowance for drift from when the record
// was seen where they cannot.
func TestLed(t *testing.T) {
	const term, skew = 200 * time.Second, time.Second
	for name, c := range map[string]struct {
		unsynchronized bool
		ahead          time.Duration // of the writer's clock
		want           time.Duration
	}{
		"clocks in common":            {false, 0, term + skew},
		"the writer's ahead":          {false, time.Second, term + 2*skew},
		"no clocks in common, behind": {true, -5 * time.Hour, term + term/100},
		"no clocks in common, ahead":  {true, 5 * time.Hour, term + term/100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := route.NewTable(nil, skew)
				table.News(leaderelection.RaceEntry{
					LeaderID: "a", HostPort: []string{"127.0.0.1:1"}, ElectionNumber: 1, Unsynchronized: c.unsynchronized,
					TermLength: term, TermExpiry: time.Now().Add(term + c.ahead),
				})
				s := table.Load()
				if got := s.UntilNext(); got != c.want || !s.Led() {
					t.Errorf("led: %v, until the next %v, want %v", s.Led(), got, c.want)
				}
				time.Sleep(c.want - time.Nanosecond)
				if !s.Led() {
					t.Error("not led before that")
				}
				time.Sleep(time.Nanosecond)
				if s.Led() || s.UntilNext() != 0 {
					t.Errorf("led: %v, until the next %v", s.Led(), s.UntilNext())
				}
			})
		})
	}
}
