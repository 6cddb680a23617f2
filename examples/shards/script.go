package main

import (
	"context"
	"fmt"
	"time"
)

// play is what happens: each line, and then the wait until all shards are owned, evenly.
func play(ctx context.Context, g *group, t *table) error {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"three members join", func() error { return g.joinAll("ann", "ben", "cem") }},
		{"dot joins: it gets what balance needs, and nothing else moves", func() error { return g.joinAll("dot") }},
		{"ben is killed: its shards move when its term is over", func() error { g.members[1].dead.Store(true); return nil }},
		{"eve and fay join", func() error { return g.joinAll("eve", "fay") }},
		{"the coordinator is killed", func() error { g.coordinator().dead.Store(true); return nil }},
		{"cem leaves in order: one write frees all it had", func() error { return g.leave(ctx, g.members[2]) }},
	} {
		begin := time.Now()
		t.say("%s", step.what)
		if err := step.do(); err != nil {
			return err
		}
		for !g.settled() {
			if time.Since(begin) > 20*g.term+30*time.Second {
				return fmt.Errorf("%s: the shards are not owned, evenly, after %v", step.what, time.Since(begin))
			}
			if err := t.watch(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		t.took(step.what, time.Since(begin))
		if err := t.watch(ctx, g.term/2); err != nil {
			return err
		}
	}
	return nil
}

func (g *group) joinAll(ids ...string) error {
	for _, id := range ids {
		if _, err := g.join(id); err != nil {
			return err
		}
	}
	return nil
}

// coordinator is the member that coordinates now, or one that is alive.
func (g *group) coordinator() *member {
	leader := g.record("coordinator").Entry().LeaderID
	var alive *member
	for _, m := range g.members {
		switch {
		case m.gone || m.dead.Load():
		case len(leader) > len(m.id) && leader[:len(m.id)+1] == m.id+"#":
			return m
		case alive == nil:
			alive = m
		}
	}
	return alive
}
