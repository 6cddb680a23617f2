package simtest

import (
	le "github.com/c8e606e4/leaderelection"
)

// accused is told that a candidate takes its clock for proved wrong.
func (r *recorder) accused(p *process, x le.ClockSkewError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logf(p.name, "its clock is said to be wrong: %v", &x)
	r.counts["clocks proved wrong"]++
	if !p.host.liar && !r.wild && !p.actor.dead.Load() {
		r.failf(p.name, "a clock that never left its bound is said to be wrong: %v", &x)
	}
}
