package leaderelection

import (
	"fmt"
	"log/slog"
	"time"
)

// diagnosis logs the faults of others that records show. It decides nothing. It belongs to the loop.
type diagnosis struct {
	f    *follower
	id   string // the campaign's LeaderID; empty for an observer
	held bool   // the campaign's leaderships have a hold

	setBack  setBack
	any      bool           // a record was seen
	reported ElectionNumber // the last one that another process won under this LeaderID
	far      string         // the leader by whose record clocks disagree
	farAgain time.Duration  // until then it is not logged again of this leader
}

// disagreeEvery is how often it is logged that a leader's clock and this one disagree.
const disagreeEvery = time.Minute

// look takes in a record that was learned. If it is the campaign's own, the campaign wrote it.
func (d *diagnosis) look(e *RaceEntry, k *claims, now instant, news bool, how source, own bool) {
	d.checkSetBack(e, k, now, how)
	if !news {
		return
	}
	d.checkDouble(e, own)
	if err := tooFar(e, now.wall, k.skew); err != nil && !k.measured && (e.LeaderID != d.far || now.mono >= d.farAgain) {
		d.far, d.farAgain = e.LeaderID, now.mono+disagreeEvery
		d.f.log(slog.LevelWarn, "clocks disagree", "err", err)
	}
}

// setBack remembers that reads return a record older than the newest known.
type setBack struct {
	older bool
	since time.Duration // when the first such read was answered
	told  bool
	gone  bool // it was logged that the record is gone
}

// checkSetBack logs, once, that the record is gone, as soon as none is found although one was
// known. It also logs, once, that the store has gone back, if for more than a term each read has
// returned a record older than one that was there before. No replica should lag for so long. An old
// record is not news, so a leader by that record is not known here.
func (d *diagnosis) checkSetBack(e *RaceEntry, k *claims, now instant, how source) {
	b, f := &d.setBack, d.f
	switch {
	case e.ElectionNumber == NoElections && k.newest.of.ElectionNumber > NoElections:
		if !b.gone {
			b.gone = true
			f.log(slog.LevelWarn, "the record is gone: it was deleted, or emptied", "known", uint64(k.newest.of.ElectionNumber), "place", f.knownPlace())
		}
	case how == wasPushed:
		b.gone = b.gone && e.Compare(k.newest.of) < 0
	case e.Compare(k.newest.of) >= 0:
		*b = setBack{}
	case !b.older:
		b.older, b.since = true, now.mono
	case !b.told && now.mono-b.since > k.termOf(k.newest.of):
		b.told = true
		f.log(slog.LevelWarn, "the store has gone back: it was restored, or the record was deleted", "known", uint64(k.newest.of.ElectionNumber), "read", uint64(e.ElectionNumber),
			"place", f.knownPlace())
	}
}

// checkDouble reports another live process under this candidate's LeaderID. The first record that a
// campaign finds may come from its own former process. A record that is newer than that does not.
func (d *diagnosis) checkDouble(e *RaceEntry, own bool) {
	first := !d.any
	d.any = true
	if e.Vacant() || e.LeaderID != d.id || own || first || d.reported == e.ElectionNumber {
		return
	}
	if d.held {
		return // perhaps this machine's job of the last period, which takes longer than a period
	}
	d.reported = e.ElectionNumber
	d.f.log(slog.LevelError, "another process uses this candidate's LeaderID, or the record was edited: give each its own", "id", d.id, "token", uint64(e.ElectionNumber), "incarnation", e.Incarnation)
	if t := d.f.trace; t != nil && t.DuplicateID != nil {
		entry := e.Clone()
		d.f.events.Add(func() { t.DuplicateID(*entry) })
	}
}

// refusals counts the writes that a store refused as lost races though nobody else had won: the
// record, read again, was still what they were conditional on.
type refusals struct {
	over  *RaceEntry // what the last refused write was conditional on, until the next read
	count int
}

// maxRefusals is after how many such refusals a warning is logged. Fewer may come from stale reads.
const maxRefusals = 3

// check compares what a read has returned after a refusal with what the write was conditional on.
func (r *refusals) check(e *RaceEntry, d *diagnosis) {
	over := r.over
	if r.over = nil; over == nil {
		return
	}
	if !same(e, over) {
		r.count = 0
		return
	}
	if r.count++; r.count == maxRefusals {
		d.f.log(slog.LevelWarn, "the store refuses this candidate's writes as lost races, though nobody else writes: something between the two "+
			"changes what the condition is on (a proxy that weakens or strips ETags, as one that compresses does; a store that wants them quoted otherwise), "+
			"a policy refuses with the same code, or reads are stale", "id", d.id, "refused", r.count, "place", d.f.knownPlace())
	}
}

// tooFar returns an error if a held record's term ends later than clocks within bounds allow. It
// says by how much.
func tooFar(e *RaceEntry, wall time.Time, skew time.Duration) error {
	if e.Vacant() || e.Unsynchronized || e.TermLength <= 0 || e.TermLength > MaxTermLength {
		return nil
	}
	latest := wall.Add(e.TermLength + 2*skew)
	if over := e.TermExpiry.Sub(latest); over > 0 {
		return fmt.Errorf("the term of %q ends %v later than clocks within MaxClockSkew allow: one of the two clocks is wrong", e.LeaderID, over)
	}
	return nil
}
