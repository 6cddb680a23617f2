//go:build go1.25

package sim

import (
	"testing"
	"time"
)

// A machine whose wall clock is compared with nobody's is suspended, and its clock is
// set back, in every order. What its readings show must end its view in time; only what
// happens between two looks, of which the second one shows nothing, cannot.
func TestSuspendedAndSetBack(t *testing.T) {
	for name, c := range map[string]struct {
		step, freeze, thaw time.Duration // since the last extension
	}{
		"set back, then suspended": {step: 2 * time.Second, freeze: 4 * time.Second, thaw: 9 * time.Second},
		"suspended, then set back": {step: 8 * time.Second, freeze: 2 * time.Second, thaw: 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(p *Params) { p.Unsynchronized, p.Apart = 2, time.Hour }, func(s *stage) {
				a, b := s.hosts[0], s.hosts[1]
				p := s.leads(a)
				b.launch()
				end := p.campaign.View().Get()
				s.until(s.Term, "a extends its lease", func() bool { return p.campaign.View().Get().After(end) })
				a.link.Set(Weather{LoseRequest: 1, Silent: 1, Until: time.Hour}, false)
				began := s.now()
				s.clear = time.Hour
				s.pass(min(c.step, c.freeze))
				for s.now()-began < 10*time.Second {
					switch s.now() - began {
					case c.step:
						a.clock.Step(-4500 * time.Millisecond)
					case c.freeze:
						a.freeze(true)
					case c.thaw:
						a.resume()
					}
					s.pass(time.Second)
				}
				s.until(2*s.Term, "b leads", func() bool { return b.proc.campaign.View().ValueInFuture() })
				s.pass(s.Term)
				a.link.Set(Weather{}, false)
				s.clear = s.now()
			})
		})
	}
}
