//go:build go1.25

package shard

import (
	"sync"
	"testing"
	"time"
)

// kernel knows the processes of one machine, by the incarnations of their campaigns.
type kernel struct {
	mu    sync.Mutex
	files map[string]*mortal
	tell  map[int]func()
	n     int
}

// mortal is a process's leaderelection.Lifeline.
type mortal struct {
	k    *kernel
	dead bool
}

func (l *mortal) Live(name string) error {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	if !l.dead {
		l.k.files[name] = l
	}
	return nil
}

func (l *mortal) End(name string) error {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	if !l.dead {
		delete(l.k.files, name)
	}
	return nil
}

func (l *mortal) Dead(name string) bool {
	l.k.mu.Lock()
	defer l.k.mu.Unlock()
	of := l.k.files[name]
	return of != nil && of.dead
}

func (l *mortal) OnDeath(name string, tell func()) (stop func()) {
	l.k.mu.Lock()
	l.k.n++
	id := l.k.n
	l.k.tell[id] = func() {
		if l.Dead(name) {
			go tell()
		}
	}
	now := l.k.tell[id]
	l.k.mu.Unlock()
	now()
	return func() {
		l.k.mu.Lock()
		defer l.k.mu.Unlock()
		delete(l.k.tell, id)
	}
}

func (l *mortal) Bury(string) error { return nil }

func (l *mortal) die() {
	l.k.mu.Lock()
	l.dead = true
	var all []func()
	for _, tell := range l.k.tell {
		all = append(all, tell)
	}
	l.k.mu.Unlock()
	for _, tell := range all {
		tell()
	}
}

// A member whose process dies, the coordinator or another, costs its shards no term if its machine
// has another member that coordinates, or will: on a polled store they take as long as the members
// take to read the new assignment. One that is only cut off is waited for.
func TestLifelineOfAMember(t *testing.T) {
	both(t, func(g *group) {
		k := &kernel{files: map[string]*mortal{}, tell: map[int]func(){}}
		lines := map[string]*mortal{}
		for _, id := range []string{"a", "b", "c", "d"} {
			line := &mortal{k: k}
			lines[id] = line
			g.join(id, func(c *Config) { c.Lifeline = line })
		}
		soon := time.Second
		if g.polled {
			soon += T / 2 // PollInterval
		}
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		for _, p := range g.all()[:2] {
			g.dies(p)
			g.zombies = append(g.zombies, p)
			lines[p.id].die()
			if took := g.settles(12, 3*T); took > soon {
				g.t.Errorf("%s is dead: settled after %v", p.id, took)
			} else {
				g.t.Logf("%s is dead: settled after %v", p.id, took)
			}
			time.Sleep(time.Minute)
		}
		p := g.all()[0]
		p.cut() // it lives, and acts on for its view
		g.hide(p)
		if took := g.settles(12, 3*T); took < soon {
			g.t.Errorf("%s is cut off: settled after %v", p.id, took)
		}
		g.show(p)
		p.heal()
	})
}
