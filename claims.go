package leaderelection

import (
	"maps"
	"slices"
	"time"
)

// This file has the one question on which safety rests: may anybody lead by what is known of the record?
// Everything that may keep a candidate from the record is a claim with an end.

// policy is the part of a Config that decides anything.
type policy struct {
	id         string
	term, skew time.Duration
	hold       time.Duration // nobody else acquires the record for so long from an acquisition
	holdsLate  bool          // but only once it was released: if the process dies, others continue its job
	measured   bool          // ClockPolicy Unsynchronized: no wall clock is compared
	checked    bool          // stamps and the clock's own bound count
	hostPort   []string
	params     []byte
	priority   int
}

// claim is a state of the record by which somebody may lead, or which is kept for somebody.
type claim struct {
	of     *RaceEntry
	seen   time.Duration // when its term was first seen, by the monotonic clock: it had been written by then
	proved bool          // it was read or written, and not only pushed
}

// end is when a claim is over: as soon as one of the two clocks has reached its part. A part that is zero
// never comes.
type end struct {
	wall time.Time
	mono time.Duration
}

// free is the end of what is over at once.
var free = end{mono: -1}

func (e end) reached(at instant) bool { return e.byWall(at) || e.mono != 0 && at.mono >= e.mono }

func (e end) byWall(at instant) bool { return !e.wall.IsZero() && !at.wall.Before(e.wall) }

// claims are what is known of the record.
type claims struct {
	*policy
	mistrust bool // this machine's wall clock, or the store's, is proved wrong: none is compared

	newest   claim         // of the newest state ever learned
	base     claim         // of the state that the next write is conditional on
	older    []claim       // states that reads have shown since newest, and that are older
	doubt    bool          // reads have shown such a state since they have shown the newest
	disputed bool          // a feed contradicts what only it has told of: a read must decide
	longest  time.Duration // of the terms of the newest state, of the one before, and of the policy
	quiet    time.Duration // nobody new leads before: something is not as it was promised
	dead     map[string]bool
}

// maxOlder is how many older states are told apart. Lagging replicas show few.
const maxOlder = 8

// source is how a state of the record was learned. Only the first two are proofs.
type source int

const (
	wasRead    source = iota // by a read, or along with a lost race
	wasWritten               // by the answer to a write of this campaign
	wasPushed                // by a feed, or by a call that was answered too late: news, not a proof
)

// learn takes in a state of the record, and reports whether it is newer than all before.
//
// A state that is older than one known comes from a stale read, or the store was set back, or a feed has told of
// what is undone. A read cannot tell which. The store has been set back if a write over such a state is accepted (see
// lease.learn), if the next newer state is another's, and of another leadership than the newest, or if a state
// clashes with the newest. A record that was emptied was set back as well. Then somebody may lead by a state
// that is lost, and that nobody here has seen. Such a view ends within a term of the set-back, since no write confirms
// it any more. So nobody new leads here before that: it is quiet.
//
// What a feed tells is no proof. Another state of the same order that is read takes its place, as news.
func (k *claims) learn(r *RaceEntry, how source, own bool, now instant) (news bool) {
	n, proof := &k.newest, how != wasPushed
	k.disputed = k.disputed && how != wasRead
	order := +1
	if n.of != nil {
		order = r.Compare(n.of)
	}
	replaces := order == 0 && !(same(r, n.of) && oneTerm(r, n.of))
	lost := n.of != nil && clash(r, n.of)
	switch {
	case order > 0, replaces && proof && !n.proved:
		seen := now.mono
		switch {
		case n.of == nil:
			k.longest = max(k.term, k.termOf(r))
		case oneTerm(r, n.of):
			seen = n.seen
		default:
			k.longest = max(k.term, k.termOf(r), k.termOf(n.of))
		}
		if r.Emptied || lost || k.doubt && !own && r.ElectionNumber != n.of.ElectionNumber {
			k.hush(now)
		}
		*n, k.older, k.doubt, news = claim{r, seen, proof}, nil, k.doubt && own && !proof, true
		k.base = *n
	case order == 0 && !replaces:
		if proof {
			n.proved, k.doubt = true, false
		}
		if how == wasWritten || !sameVersion(r.Token, n.of.Token) {
			n.of = r
		}
		k.base = *n
	case !proof:
		k.disputed = k.disputed || !n.proved
	default:
		k.base, k.doubt = claim{r, now.mono, true}, true
		if i := slices.IndexFunc(k.older, func(o claim) bool { return oneTerm(o.of, r) }); i >= 0 {
			k.base.seen = k.older[i].seen
			break
		}
		if r.Emptied || lost {
			k.hush(now)
		}
		k.older = append(k.older[max(0, len(k.older)-maxOlder+1):], k.base)
	}
	return news
}

// old reports whether r is older than the newest state known, or another of the same order.
func (k *claims) old(r *RaceEntry) bool {
	n := k.newest.of
	return n != nil && (r.Compare(n) < 0 || r.Compare(n) == 0 && !oneTerm(r, n))
}

// clash reports whether one of the two is lost, or never was: a record repeats no order, nor the number of a leadership,
// and after a leadership's release comes nothing of it but an operator's request.
func clash(r, o *RaceEntry) bool {
	return r.Compare(o) == 0 && !oneTerm(r, o) ||
		r.ElectionNumber == o.ElectionNumber && (r.Incarnation != o.Incarnation || o.Vacant() && r.Successor == "" && r.Compare(o) > 0)
}

// hush begins the quiet: the longest term, and what two clocks run apart in it.
func (k *claims) hush(from instant) {
	k.quiet = max(k.quiet, from.mono+k.longest+drift(k.longest, k.skew))
}

// termOf returns the term of r, or this candidate's if r names none.
func (k *claims) termOf(r *RaceEntry) time.Duration {
	if r.TermLength > 0 {
		return min(r.TermLength, MaxTermLength)
	}
	return k.term
}

// end is the rule of when a claim is over for this candidate:
//
//   - What is vacant is free, unless it is on hold, or reserved for another until its TermExpiry. A
//     candidate whose clock is proved wrong leaves it to the others for a term.
//   - What the dead hold is free, unless it is on hold.
//   - A term is over when the wall clock shows its TermExpiry, its Hold and MaxClockSkew.
//   - If wall clocks are not compared, it is over when it has not been seen to change for its length, its
//     Hold and what two clocks run apart in that.
//   - No right clock writes a TermExpiry that is further off than patience. So what has not changed for
//     that long is over as well, and who takes it marks what it writes. A Hold has no patience.
func (k *claims) end(c claim) end {
	r, term := c.of, k.termOf(c.of)
	hold, apart := min(max(r.Hold, 0), MaxTermLength), drift(term, k.skew)
	// The drift in the hold is at most the hold itself: no candidate's term is so short that this matters.
	still := end{mono: c.seen + apart + hold + time.Duration(float64(hold)*float64(apart)/float64(max(term, apart)))}
	compares := !k.measured && !k.mistrust && !r.Unsynchronized
	wall := end{wall: r.TermExpiry.Add(hold + k.skew)}
	switch {
	case r.Vacant() && hold > 0:
		if compares {
			still.wall = wall.wall
		}
		return still
	case r.Vacant() && (r.Successor == "" || r.Successor == AnySuccessor || r.Successor == k.id):
		if !k.mistrust {
			return free
		}
	case r.Vacant() && compares:
		still.wall = r.TermExpiry
	case !r.Vacant() && k.dead[r.Incarnation] && hold == 0:
		return free
	case !r.Vacant() && compares:
		if hold == 0 && k.hold == 0 {
			longest := max(term, k.longest)
			wall.mono = c.seen + max(2*longest, longest+3*k.skew) // patience
		}
		return wall
	}
	still.mono += term
	return still
}

// over reports whether nobody leads, and the record is kept for nobody, at the given look at the clocks. What mine
// says yes to is this candidate's own. Marked says that no wall clock shows it.
func (k *claims) over(at instant, mine func(*RaceEntry) bool) (over, marked bool) {
	if k.base.of == nil || at.mono < k.quiet {
		return false, false
	}
	marked = k.measured || k.mistrust
	for _, c := range [...]claim{k.newest, k.base} {
		switch e := k.end(c); {
		case mine(c.of):
		case !e.reached(at):
			return false, false
		case !c.of.Vacant() && !e.wall.IsZero() && !e.byWall(at):
			marked = true
		}
	}
	return true, marked
}

// bury forgets the dead that hold nothing that is known.
func (k *claims) bury() (buried []string) {
	holds := func(c claim, id string) bool { return c.of != nil && !c.of.Vacant() && c.of.Incarnation == id }
	for _, id := range slices.Collect(maps.Keys(k.dead)) {
		if !holds(k.newest, id) && !holds(k.base, id) {
			delete(k.dead, id)
			buried = append(buried, id)
		}
	}
	return buried
}

// drift returns how much longer than a term a challenger waits if it cannot compare wall clocks:
// MaxClockSkew, and at least a hundredth of the term. Crystals are exact to a ten-thousandth, but a
// time service turns the monotonic clock along with the wall clock: ntpd by a two-thousandth at most,
// chrony by its maxslewrate, a twelfth by default. If the leader's clock is slowed by the rate r and the
// challenger's is sped up by it, the view lasts (T - S) / (1 - r), and the wait (T + S) / (1 + r). So r may
// be S / T at most, as the page of the ClockPolicy Unsynchronized says.
func drift(term, skew time.Duration) time.Duration { return max(skew, term/100) }

// oneTerm reports whether r and o come from the same write of a leader, or are the same vacancy. An
// operator's request is not a leader's sign of life, and changes only Extension and Successor. If a
// record was emptied again, its Token shows that: another version.
func oneTerm(r, o *RaceEntry) bool {
	return r.ElectionNumber == o.ElectionNumber && r.Incarnation == o.Incarnation && r.WriteID == o.WriteID &&
		r.LeaderID == o.LeaderID && r.TermExpiry.Equal(o.TermExpiry) &&
		r.Emptied == o.Emptied && (!r.Emptied || sameVersion(r.Token, o.Token))
}
