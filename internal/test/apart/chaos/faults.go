//go:build linux

package main

import (
	"slices"
	"sync"
	"syscall"
	"time"
)

// fault is something that is done to the world, and undone.
type fault struct {
	name string
	do   func(w *world) (undo func())
}

// candidateFaults befall a candidate: every other time the one that leads.
var candidateFaults = []fault{
	{"candidate killed", func(w *world) func() {
		p := w.somebody()
		p.die()
		return func() { w.must(p.live()) }
	}},
	{"candidate stopped", func(w *world) func() {
		p := w.somebody()
		p.stays()
		p.signal(syscall.SIGSTOP)
		return p.revive
	}},
	{"candidate cut off", func(w *world) func() {
		return w.links([]*host{w.somebody().host}, w.some(), true, rule{cut: true})
	}},
	{"candidate not heard", func(w *world) func() {
		return w.links([]*host{w.somebody().host}, w.store.nodes, false, rule{cut: true})
	}},
	{"candidate deaf", func(w *world) func() {
		return w.links(w.store.nodes, []*host{w.somebody().host}, false, rule{cut: true})
	}},
	{"candidate's link lossy", func(w *world) func() {
		return w.links([]*host{w.somebody().host}, w.store.nodes, true, rule{loss: float64(10+w.intn(40)) / 100})
	}},
	{"candidate's link slow", func(w *world) func() {
		return w.links([]*host{w.somebody().host}, w.store.nodes, true, rule{delay: w.within(w.term/100, w.term/3)})
	}},
	{"candidate's clock set", func(w *world) func() {
		p := w.somebody(isLibrary)
		p.tell("offset %v", w.offset())
		return func() { p.tell("offset %v", w.offset()) }
	}},
	{"transfer", func(w *world) func() {
		w.anybody(isLibrary).tell("transfer %s", w.anybody().name)
		return func() {}
	}},
	{"step down", func(w *world) func() { w.anybody(isLibrary).tell("stepdown"); return func() {} }},
	{"resign", func(w *world) func() { w.somebody(isLibrary).tell("resign"); return func() {} }},
	{"reset refused", func(w *world) func() { w.anybody(isLibrary).tell("reset 1"); return func() {} }},
	{"candidate ended", func(w *world) func() {
		p := w.somebody(isLibrary)
		p.leave()
		return p.revive
	}},
	{"candidate ended, comes as another version", func(w *world) func() { return w.upgrade((*person).leave) }},
	{"candidate killed, comes as another version", func(w *world) func() { return w.upgrade((*person).die) }},
}

// upgrade ends a candidate, which comes again as the newer version of the library, or as
// the older if it was the newer.
func (w *world) upgrade(end func(*person)) func() {
	p := w.somebody(isLibrary)
	end(p)
	p.mu.Lock()
	p.newer = !p.newer
	p.mu.Unlock()
	return p.revive
}

// storeFaults befall the store's servers.
var storeFaults = []fault{
	{"server killed", func(w *world) func() {
		n := w.node()
		n.kill()
		return func() { w.must(w.store.start(n)) }
	}},
	{"server stopped", func(w *world) func() {
		n := w.node()
		n.signal(syscall.SIGSTOP)
		return func() { n.signal(syscall.SIGCONT) }
	}},
	{"server isolated", func(w *world) func() {
		return w.links([]*host{w.node()}, append(w.all(), w.store.nodes...), true, rule{cut: true})
	}},
	{"server cut off from its peers", func(w *world) func() {
		return w.links([]*host{w.node()}, w.store.nodes, true, rule{cut: true})
	}},
	{"server's peers not heard", func(w *world) func() {
		return w.links(w.store.nodes, []*host{w.node()}, false, rule{cut: true})
	}},
	{"servers slow among themselves", func(w *world) func() {
		return w.links(w.store.nodes, w.store.nodes, true, rule{delay: w.within(w.term/100, w.term/5)})
	}},
	{"servers lossy among themselves", func(w *world) func() {
		return w.links(w.store.nodes, w.store.nodes, true, rule{loss: float64(5+w.intn(25)) / 100})
	}},
	{"split", func(w *world) func() { // one candidate with one server, and the rest with the rest
		here := []*host{w.somebody().host, w.node()}
		var there []*host
		for _, h := range append(w.all(), w.store.nodes...) {
			if !slices.Contains(here, h) {
				there = append(there, h)
			}
		}
		return w.links(here, there, true, rule{cut: true})
	}},
	{"all servers killed", func(w *world) func() {
		for _, n := range w.store.nodes {
			n.kill()
		}
		return func() {
			for _, n := range w.store.nodes {
				w.must(w.store.start(n))
			}
		}
	}},
}

// storm lets faults befall the world until the time is over, one of each kind at a time,
// and undoes them all.
func (w *world) storm(d time.Duration) {
	end := time.Now().Add(d)
	var both sync.WaitGroup
	for _, faults := range [][]fault{w.candidateFaults(), w.storeFaults()} {
		if len(faults) == 0 {
			continue
		}
		both.Go(func() {
			for {
				time.Sleep(w.within(0, w.term))
				if time.Now().After(end) {
					return
				}
				f := faults[w.intn(len(faults))]
				w.mu.Lock()
				w.faults[f.name]++
				w.mu.Unlock()
				w.say("%s", f.name)
				undo := f.do(w)
				time.Sleep(w.within(w.term/4, w.term*5/2))
				undo()
				w.say("no more: %s", f.name)
			}
		})
	}
	both.Wait()
	w.net.heal()
}

// candidateFaults are those of candidates, and of commands if there are any.
func (w *world) candidateFaults() []fault {
	all := candidateFaults[:len(candidateFaults):len(candidateFaults)]
	if w.commands > 0 {
		all = append(all, commandFaults...)
	}
	return w.wanted(all)
}

// wanted are those of the faults that are to be made.
func (w *world) wanted(all []fault) []fault {
	if w.only == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(f fault) bool { return !w.only.MatchString(f.name) })
}

func (w *world) storeFaults() []fault {
	all := append(storeFaults[:len(storeFaults):len(storeFaults)], diskFaults...)
	if f := w.store.failover; f != nil {
		all = append(all[:len(all):len(all)], fault{"fail-over", func(w *world) func() { w.must(f()); return func() {} }})
	}
	return w.wanted(all)
}

// links changes links, and returns what mends them.
func (w *world) links(from, to []*host, both bool, r rule) func() {
	w.net.set(from, to, both, r)
	return func() { w.net.set(from, to, both, rule{}) }
}

func isCommand(p *person) bool { return p.command }
func isLibrary(p *person) bool { return !p.command }

// somebody is a candidate for which all of these are true: the one that leads, every other time.
func (w *world) somebody(are ...func(*person) bool) *person {
	if p := w.leader.Load(); p != nil && p.is(are) && w.intn(2) == 0 {
		return p
	}
	return w.anybody(are...)
}

func (w *world) anybody(are ...func(*person) bool) *person {
	var all []*person
	for _, p := range w.candidates {
		if p.is(are) {
			all = append(all, p)
		}
	}
	return all[w.intn(len(all))]
}

func (p *person) is(all []func(*person) bool) bool {
	for _, is := range all {
		if !is(p) {
			return false
		}
	}
	return true
}

func (w *world) node() *host { return w.store.nodes[w.intn(len(w.store.nodes))] }

// some are all servers, or one.
func (w *world) some() []*host {
	if w.intn(3) == 0 {
		return []*host{w.node()}
	}
	return w.store.nodes
}

// all are the candidates' hosts.
func (w *world) all() (all []*host) {
	for _, p := range w.candidates {
		all = append(all, p.host)
	}
	return all
}
