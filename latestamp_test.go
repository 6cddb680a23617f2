//go:build go1.25

package leaderelection_test

import (
	"context"
	"errors"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// stampsReads is a store that stamps what it returns and what it pushes, and not the answer to
// a write, as NATS does.
type stampsReads struct{ *memory.Decider }

func (s stampsReads) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	return unstamped{s.Decider}.WriteEntry(ctx, e)
}

// A stamp that is told only after the answer, or just before it, counts as the answer's would:
// nobody goes on leading by a clock that it proves wrong, and what was taken too early is kept
// until the view of the one who led is over.
func TestClockSkewKeepsByAStampToldLater(t *testing.T) {
	for name, fault := range map[string]memory.Fault{"after the answer": {}, "before it": {AnswerDelay: 100 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				_, b, view := robbed(t, d, func(c *le.Config) {
					c.Decider.(*memory.Decider).Inject(memory.Always(fault).On(memory.Write))
					c.Decider = stampsReads{c.Decider.(*memory.Decider)}
				})
				c := join(t, d, "c", polled, func(c *le.Config) { c.PollInterval = time.Second })
				neverBoth(t, T+S-200*time.Millisecond, view, b, c)
				if e := d.Entry(); e.LeaderID != "b" || e.ElectionNumber != 2 {
					t.Fatalf("the record is %+v, want it kept by b", e)
				}
				b.note(func() {
					for _, r := range b.leaderships {
						if led := r.done.Sub(r.from); r.done.IsZero() || led > 0 || !errors.Is(r.cause, le.ErrClockSkew) {
							t.Errorf("b led for %v, until %v", led, r.cause)
						}
					}
				})
				sleep(3 * time.Second)
				c.leads(t)
			})
		})
	}
}
