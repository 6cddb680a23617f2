package shards

import (
	"fmt"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/shard"
)

// The values of Event.Event.
const (
	Began   = "state"   // what there was at the start
	Owned   = "owned"   // somebody owns the shard now
	Moving  = "moving"  // its owner is asked to let it go
	Unowned = "unowned" // nobody owns it now
	Removed = "removed" // it is not one of the group's any more
	Joined  = "joined"  // a member has a session
	Left    = "left"    // a session is over
)

// Event is a change of a group, as JSON.
type Event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Version uint64    `json:"version"`
	Shard   string    `json:"shard,omitempty"`
	Member  string    `json:"member,omitempty"` // the owner; of unowned and removed, the one that was
	From    string    `json:"from,omitempty"`   // who owned it before, of owned
	Token   uint64    `json:"token,omitempty"`
	Seat    int       `json:"seat"` // -1: none
	Session uint64    `json:"session,omitempty"`
	// Of what there was at the start:
	Shards  int `json:"shards,omitempty"`
	Missing int `json:"unowned,omitempty"`
	Members int `json:"members,omitempty"`
}

// Text is e as a line.
func (e *Event) Text() string {
	at := e.Time.UTC().Format("2006-01-02T15:04:05.000Z")
	s := fmt.Sprintf("%s version %d: ", at, e.Version)
	name, member := state.Name(e.Shard), state.Name(e.Member)
	switch e.Event {
	case Began:
		return s + fmt.Sprintf("%d shards, %d unowned, %d members", e.Shards, e.Missing, e.Members)
	case Owned:
		s += fmt.Sprintf("shard %s: %s owns it, with token %d", name, member, e.Token)
		if e.From != "" && e.From != e.Member {
			s += ", after " + state.Name(e.From)
		}
	case Moving:
		s += fmt.Sprintf("shard %s: %s is asked to let it go", name, member)
	case Unowned:
		s += fmt.Sprintf("shard %s: nobody owns it", name)
		if e.Member != "" {
			s += ", after " + member
		}
	case Removed:
		s += fmt.Sprintf("shard %s: it is gone", name)
	case Joined:
		s += fmt.Sprintf("%s has joined, at seat %d, session %d", member, e.Seat, e.Session)
	case Left:
		s += fmt.Sprintf("%s has left seat %d, session %d", member, e.Seat, e.Session)
	}
	return strings.TrimSpace(s)
}

// Follower turns assignments into events. It belongs to one goroutine.
type Follower struct{ last *shard.Assignment }

// Changed are the events that a newer assignment brings: the first one is told as a whole.
func (f *Follower) Changed(a *shard.Assignment, now time.Time) []Event {
	old := f.last
	f.last = a
	event := func(kind string) Event { return Event{Time: now, Event: kind, Version: uint64(a.Version()), Seat: -1} }
	if old == nil {
		e := event(Began)
		e.Shards, e.Members = a.Len(), len(a.Members())
		for i := range a.Len() {
			if _, o := a.Shard(i); o.Member == "" {
				e.Missing++
			}
		}
		return []Event{e}
	}
	var all []Event
	member := func(kind string, o shard.Owner) {
		e := event(kind)
		e.Member, e.Seat, e.Session = o.Member, o.Session.Seat, uint64(o.Session.Number)
		all = append(all, e)
	}
	was := sessions(old)
	is := sessions(a)
	for _, o := range a.Members() {
		if _, ok := was[o.Session]; !ok {
			member(Joined, o)
		}
	}
	for i := range a.Len() {
		name, o := a.Shard(i)
		before, _ := old.Owner(name)
		e := event("")
		e.Shard, e.Member, e.Token = name, o.Member, uint64(o.Token)
		switch {
		case o.Member != "":
			e.Seat, e.Session = o.Session.Seat, uint64(o.Session.Number)
			if o.Session != before.Session || o.Token != before.Token {
				owned := e
				owned.Event, owned.From = Owned, before.Member
				all = append(all, owned)
			}
			if o.Moving && (!before.Moving || o.Token != before.Token) {
				e.Event = Moving
				all = append(all, e)
			}
		case before.Member != "":
			e.Event, e.Member = Unowned, before.Member
			all = append(all, e)
		}
	}
	for i := range old.Len() {
		name, o := old.Shard(i)
		if _, ok := a.Owner(name); !ok {
			e := event(Removed)
			e.Shard, e.Member = name, o.Member
			all = append(all, e)
		}
	}
	for _, o := range old.Members() {
		if _, ok := is[o.Session]; !ok {
			member(Left, o)
		}
	}
	return all
}

func sessions(a *shard.Assignment) map[shard.SessionID]struct{} {
	all := map[shard.SessionID]struct{}{}
	for _, o := range a.Members() {
		all[o.Session] = struct{}{}
	}
	return all
}
