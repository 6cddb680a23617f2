package shard

import "github.com/c8e606e4/leaderelection"

// Assignment says which member owns which shard, as of one version. It is not changed
// once it was handed out, and is a statement about the past: whether a shard may be acted
// on is for [Owned.ValueInFuture] to say, and at the resource for its token.
type Assignment struct{ a *assignment }

// Owner is who owns a shard.
type Owner struct {
	Member   string    // its MemberID; empty: nobody owns the shard
	HostPort []string  // where clients reach it
	Session  SessionID // the zero value: nobody owns the shard
	// Token is the shard's newest token, also when nobody owns it.
	Token leaderelection.ElectionNumber
	// Moving: the member is asked to let the shard go.
	Moving bool
}

func (a *assignment) public() *Assignment {
	if a == nil {
		return nil
	}
	return &Assignment{a}
}

// Version counts the assignments of the group.
func (a *Assignment) Version() leaderelection.ElectionNumber { return a.a.version }

// Len returns how many shards there are, those included that are about to go.
func (a *Assignment) Len() int { return a.a.shards.Len() }

// Shard returns the name and the owner of shard i, from 0 to Len()-1, in the order of
// their names (of numbers, if they are Numbered).
func (a *Assignment) Shard(i int) (name string, owner Owner) {
	p := a.a.places[i]
	owner = Owner{Token: leaderelection.ElectionNumber(p.token), Moving: p.releasing}
	if p.session != none {
		s := a.a.sessions[p.session]
		owner.Member, owner.HostPort, owner.Session = s.Member, s.HostPort, s.SessionID
	}
	return a.a.shards.Name(i), owner
}

// Owner returns who owns the shard with a name, and false if there is no such shard.
func (a *Assignment) Owner(shard string) (Owner, bool) {
	i := a.a.shards.index(shard)
	if i == none {
		return Owner{}, false
	}
	_, owner := a.Shard(i)
	return owner, true
}

// Members returns the sessions that have a seat, or had one and still own something, in
// the order of their seats.
func (a *Assignment) Members() []Owner {
	var members []Owner
	for _, s := range a.a.sessions {
		members = append(members, Owner{Member: s.Member, HostPort: s.HostPort, Session: s.SessionID})
	}
	return members
}
