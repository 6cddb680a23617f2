//go:build go1.25

package sim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// fickle is a real client as some are: of three writes that it has made it says
// once that it does not know, and once that somebody was faster, as when it has
// tried again by itself.
type fickle struct {
	*Memory
	writes atomic.Int64
	blind  atomic.Bool // the next read fails: what has happened comes to light later
}

var errUnknown = errors.New("sim: who knows")

func (f *fickle) Decider(way *Way) le.RaceDecider { return way.Over(f) }

func (f *fickle) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	token, err := f.Memory.WriteEntry(ctx, e)
	if err != nil {
		return nil, err
	}
	switch n := f.writes.Add(1); {
	case n%6 == 0:
		f.blind.Store(true)
		return nil, errUnknown
	case n%3 == 0:
		return nil, errUnknown
	case n%3 == 1:
		return nil, fmt.Errorf("sim: %w", le.ErrLostRace)
	}
	return token, nil
}

func (f *fickle) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	if f.blind.Swap(false) {
		return nil, errUnknown
	}
	return f.Memory.ReadCurrent(ctx)
}

// The judge goes by what has happened in the store, not by what its client says.
func TestClientThatDoesNotKnow(t *testing.T) {
	found := 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := Draw(seed)
				p.Backups, p.Term, p.Skew, p.Poll, p.Length = false, 15*time.Second, time.Second, 0, 10*time.Minute
				p.Calm = 50 * time.Millisecond
				res := Run(p, &fickle{Memory: NewMemory(0)})
				if len(res.Violations) > 0 {
					t.Error(res)
				}
				found += res.Counts["writes that happened in spite of the client's word"]
			})
		})
	}
	if found == 0 {
		t.Error("no write came to light later")
	}
}

// A store is set back to what it held some leaderships ago, as from a backup. Who leads
// goes on; no number is given again that anybody has seen. Who takes what is older than what it knew leads
// by that when it has been quiet for a term and the allowance.
func TestStoreSetBack(t *testing.T) {
	for _, feed := range []bool{true, false} {
		play(t, 3, func(p *Params) { p.Feed = feed }, func(s *stage) {
			a, b, c := s.hosts[0], s.hosts[1], s.hosts[2]
			s.leads(a)
			b.launch()
			c.launch()
			s.pass(2 * s.Term)
			a.leave()
			leader := func() *host {
				for _, h := range []*host{b, c} {
					if h.leads() == leading {
						return h
					}
				}
				return nil
			}
			s.until(2*s.Term, "one of them leads", func() bool { return leader() != nil })
			first := leader()
			number := first.proc.campaign.View().ElectionNumber()
			s.pass(2 * s.Term)
			setBack(s, 3)
			s.pass(3 * s.Term)
			if n := first.proc.campaign.View().ElectionNumber(); n != number || first.leads() != leading {
				t.Errorf("leadership %d ended when the store was set back", number)
			}
			first.crash()
			crashed := s.now()
			setBack(s, 3)
			s.until(2*(s.Term+2*s.Skew), "the other one leads", func() bool { return leader() != nil })
			if took := s.now() - crashed; took < s.Term+s.Skew {
				t.Errorf("the other leads %v after the store was set back: somebody may lead by a state that is lost", took)
			}
			if n := leader().proc.campaign.View().ElectionNumber(); n <= number {
				t.Errorf("number %d is given after %d", n, number)
			}
		})
	}
}

// setBack sets the store back to the record that was written as the n-th.
func setBack(s *stage, n int) {
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	e := s.rec.records[n].Clone()
	s.rec.setBackTo(e, s.store.(*Memory).SetBack(e))
}
