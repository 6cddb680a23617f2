package leaderelection

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
	"unicode/utf8"
)

// wants reports whether this candidate is ready to lead now.
func (c *Campaign) wants(now instant) bool {
	return !c.stopping && !c.health.sick && (now.mono >= c.cooldown || c.named())
}

// named reports whether the record is reserved for this candidate by name. That is an operator's
// request, and ends the candidate's cooldown.
func (c *Campaign) named() bool {
	k := c.l.newest.of
	return k != nil && k.Vacant() && k.Successor == c.cfg.LeaderID
}

// wish is what this campaign would like of its lease now.
func (c *Campaign) wish(now instant) wish {
	r := c.leadership
	w := wish{lead: c.wants(now), work: r != nil && c.l.lead == nil}
	if r == nil || r.over {
		return w
	}
	// Work that winds down has DrainTimeout; then the view ends. If no work runs, for nobody is the lease kept.
	w.keep = r.cause == nil || now.mono < r.drainUntil && len(r.running) > 0
	w.extend = c.extendEvery(now)
	if !c.announces(c.l.base.of) {
		w.extend = min(w.extend, announceEvery)
	}
	return w
}

// releasing reports whether this campaign gives its record back now.
func (c *Campaign) releasing(now instant) bool {
	return c.leadership == nil && c.l.leaving(c.wish(now)) && c.owns() && c.l.holds(now)
}

// owns reports whether the newest state of the record that is proved is this campaign's own.
func (c *Campaign) owns() bool { return c.l.mine(c.l.proved) }

// extendEvery returns how long after a confirmed write of the lease the next is due. For a term
// after a store call has failed or was slow, it is half as long. So if that was the beginning of an
// outage, more is left of the view.
func (c *Campaign) extendEvery(now instant) time.Duration {
	every := c.cfg.ExtendEvery
	if c.trouble > 0 && now.mono < c.trouble+c.cfg.TermLength {
		every /= 2
	}
	return every
}

// noteTrouble notes that a leader's store call has failed, or has taken half of the time that it
// may take. A lost race is an answer like any other.
func (c *Campaign) noteTrouble(a *answer, now instant) {
	failed := a.err != nil && !errors.Is(a.err, ErrLostRace)
	if c.leadership != nil && (failed || now.mono-a.start.mono >= c.f.timeout/2) {
		c.trouble = now.mono
	}
}

// act makes the one store call that is due, if any.
func (c *Campaign) act(wake *alarm) {
	c.weigh(wake.now)
	wish := c.wish(wake.now)
	c.l.wake(wake, wish)
	if !c.f.mayCall(wake) {
		return
	}
	switch kind := c.l.next(wake.now, wish); {
	case kind == OpRead:
		c.f.read(wake, c.readDue())
	case kind != "" && c.mayWrite(wake, kind):
		c.write(wake, kind)
	case c.leadership == nil && !c.stopping:
		c.poll(wake)
	}
}

// readDue returns when a read that the lease asks for may begin. What became of a write is asked at once. A
// read that comes before a write that must wait is as late as that. If a read did not bring what
// the lease has asked for, the next has a pause.
func (c *Campaign) readDue() time.Duration {
	switch {
	case c.l.unsure || c.l.base.of == nil:
		return 0
	case c.reread:
		return max(c.writes.notBefore, c.f.lastRead+c.f.reads.base)
	}
	c.reread = true
	return c.writes.notBefore
}

// mayWrite reports whether a write of the given kind may begin now.
func (c *Campaign) mayWrite(wake *alarm, kind OpKind) bool {
	if wake.now.mono < c.writes.notBefore {
		wake.at(c.writes.notBefore)
		return false
	}
	draining := c.leadership != nil && c.leadership.cause != nil
	return kind == OpRelease || draining || c.health.allows(wake)
}

// poll reads the record if no feed tells of it. If reads take longer than PollInterval, another is always due.
func (c *Campaign) poll(wake *alarm) {
	if c.f.call != nil {
		return
	}
	if due, polling := c.f.pollDue(wake, &c.l.claims); polling {
		c.f.read(wake, due)
	}
}

// write makes a write of the given kind.
func (c *Campaign) write(wake *alarm, kind OpKind) {
	c.health.spend()
	c.reread = false
	if kind == OpAcquire {
		c.single.claims()
		c.cooldown = 0 // over, or ended by an operator; a Resign from now on sets it again
	}
	over := c.l.base.of
	e := c.l.issue(wake.now, kind)
	if kind != OpRelease {
		c.proofs.live(e.Incarnation)
	}
	c.f.begin(wake.now, kind, e, over)
	wake.at(c.f.call.deadline)
}

// announceEvery is how soon after the last extension another may follow for an announcement. Some
// stores take one write a second for each object.
const announceEvery = time.Second

// maxAnnouncement is how many bytes of a record HostPort and ConnectionParams may take, in the
// worst case. Stores keep a quarter of a MiB.
const maxAnnouncement = 192 << 10

// Announce replaces the HostPort and the ConnectionParams of this candidate, both: nil removes
// them. Use it when the address of a candidate changes while it leads: its leadership goes on. A
// leader makes one extension for it, at once or a second after its last extension, whichever is
// later. Observers then see the change. The change also applies to later leaderships. If Announce
// is called again before the extension, only the newest call counts.
//
// Announce refuses what Config refuses, with an ErrConfig, and then changes nothing. It does not
// wait for the store: nil means that the campaign will write the change if it still leads.
func (c *Campaign) Announce(hostPort []string, params []byte) error {
	if faults := checkAnnouncement(hostPort, params); faults != nil {
		return fmt.Errorf("leaderelection: Announce: %w", wrong(faults))
	}
	c.f.post(announced{slices.Clone(hostPort), slices.Clone(params)})
	return nil
}

// announces reports whether the record e has this candidate's HostPort and ConnectionParams.
func (c *Campaign) announces(e *RaceEntry) bool {
	return slices.Equal(e.HostPort, c.l.hostPort) && bytes.Equal(e.ConnectionParams, c.l.params)
}

// checkAnnouncement returns why a record cannot keep this HostPort and these ConnectionParams.
func checkAnnouncement(hostPort []string, params []byte) (faults []error) {
	size := base64.StdEncoding.EncodedLen(len(params))
	for i, s := range hostPort {
		if !utf8.ValidString(s) {
			faults = append(faults, fmt.Errorf("HostPort %d, %q, is not UTF-8 text, which is all that a record can keep", i, s))
		} else if _, _, err := net.SplitHostPort(s); err != nil {
			faults = append(faults, fmt.Errorf("HostPort %d, %q, is not host:port: %w", i, s, err))
		}
		size += 6 * len(s) // if each is a control character
	}
	if size > maxAnnouncement {
		faults = append(faults, fmt.Errorf("HostPort and ConnectionParams may take %d bytes of the record, and %d are allowed: keep them short", size, maxAnnouncement))
	}
	return faults
}
