package shard

import (
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Assignment says which member owns which shard, in one version. Use it to route requests, and to
// show the group. It does not change, so it is a statement about the past. Whether a member may
// act on a shard, only [Owned.ValueInFuture] can say, and at the resource the token. A nil or zero
// Assignment has no shards.
type Assignment struct{ a assignment }

// Owner describes the owner of a shard.
type Owner struct {
	Member   string    // its MemberID; empty if nobody owns the shard
	HostPort []string  // the addresses at which clients reach it
	Session  SessionID // zero if nobody owns the shard
	// Token is the shard's newest token, even if nobody owns the shard.
	Token leaderelection.ElectionNumber
	// Moving says that the member has been asked to let the shard go.
	Moving bool
}

func (a *assignment) public() *Assignment {
	if a == nil {
		return nil
	}
	return &Assignment{*a}
}

// in returns what is in a, which may be nil.
func (a *Assignment) in() *assignment {
	if a == nil {
		return &assignment{}
	}
	return &a.a
}

// Version returns the number of this assignment. It grows with each new assignment of the group.
func (a *Assignment) Version() leaderelection.ElectionNumber { return a.in().version }

// Len returns the number of shards, including those that are about to go.
func (a *Assignment) Len() int { return a.in().shards.Len() }

// Of returns the number of numbered shards in the group, or 0 if the shards have names. A router
// passes it to [KeyName]: with another number, a key leads to the wrong shard.
func (a *Assignment) Of() int { return a.in().shards.numbered }

// Shard returns the name and the owner of shard i, from 0 to Len()-1. The shards are in the order
// of their names, or of their numbers if they are Numbered.
func (a *Assignment) Shard(i int) (name string, owner Owner) {
	p := a.a.places[i]
	owner = Owner{Token: leaderelection.ElectionNumber(p.token), Moving: p.releasing}
	if p.session != none {
		s := a.a.sessions[p.session]
		owner.Member, owner.HostPort, owner.Session = s.Member, s.HostPort, s.SessionID
	}
	return a.a.shards.Name(i), owner
}

// Owner returns the owner of the shard with the given name, and false if there is no such shard.
func (a *Assignment) Owner(shard string) (Owner, bool) {
	i := a.in().shards.index(shard)
	if i == none {
		return Owner{}, false
	}
	_, owner := a.Shard(i)
	return owner, true
}

// Failure says that a member could not work on a shard: its OnOwned returned an error.
type Failure struct {
	Member string    // its MemberID
	Count  int       // the number of failures without an hour in between
	Until  time.Time // the shard is not tried there again before
	Err    string    // the last error
}

// Failures returns the members that have failed with a shard within the last hour.
func (a *Assignment) Failures(shard string) []Failure {
	var all []Failure
	for _, f := range a.in().failures[a.in().shards.canonical(shard)] {
		all = append(all, Failure(f))
	}
	return all
}

// Totals returns the number of shards that nobody owns, the number of those whose owner has been
// asked to let them go, and the number of those with which a member has failed within the last
// hour.
func (a *Assignment) Totals() (unowned, moving, failing int) {
	all := a.in()
	for i, p := range all.places {
		switch {
		case p.session == none:
			unowned++
		case p.releasing:
			moving++
		}
		if len(all.failures[all.shards.Name(i)]) > 0 {
			failing++
		}
	}
	return unowned, moving, failing
}

// Members returns the sessions that have a seat, or had one and still own a shard, in the order
// of their seats.
func (a *Assignment) Members() []Owner {
	var members []Owner
	for _, s := range a.in().sessions {
		members = append(members, Owner{Member: s.Member, HostPort: s.HostPort, Session: s.SessionID})
	}
	return members
}
