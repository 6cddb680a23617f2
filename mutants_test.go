//go:build go1.25

package leaderelection_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutants are deliberate breakages of this package, each with the named tests that
// must notice it: a test that lets its mutant pass guards nothing. (The simulation
// has its own.) Where a change moves the text that a mutant replaces, move the
// mutant along.
var mutants = []struct {
	name     string
	file     string
	old, new string
	caughtBy string // a regular expression of test names
}{
	{name: "no skew margin for the challenger", file: "knowledge.go",
		old: "h.wall = h.wall.Add(k.skew)", new: "_ = k.skew", caughtBy: "TestRule05Challenger|TestRule06"},
	{name: "view not cut by the skew", file: "writes.go",
		old: "e.TermExpiry.Add(-c.cfg.MaxClockSkew))", new: "e.TermExpiry)", caughtBy: "TestRule02ViewEnds"},
	{name: "monotonic end not cut by the skew", file: "writes.go",
		old: "c.cfg.TermLength-c.cfg.MaxClockSkew, e.Term", new: "c.cfg.TermLength, e.Term", caughtBy: "TestRule02WallClockSetBack"},
	{name: "any own record confirms a write", file: "attempts.go",
		old: "a.ext <= e.Extension && a.expiry.Equal(e.TermExpiry)", new: "a.ext <= e.Extension", caughtBy: "TestRule08Own"},
	{name: "a pushed record extends the view", file: "learn.go",
		old: "; how != wasPushed && a != nil && a.start", new: "; a != nil && a.start", caughtBy: "TestRule08PushedExtension"},
	{name: "a pushed record begins a leadership", file: "learn.go",
		old: "acquired := how != wasPushed && c.leadership", new: "acquired := c.leadership", caughtBy: "TestRule08PushedAcquisition"},
	{name: "a pushed record decides an open write", file: "learn.go",
		old: "	if how != wasPushed {\n		c.attempts.settle(e)", new: "	{\n		c.attempts.settle(e)", caughtBy: "TestRule08PushedRecordIsRead"},
	{name: "a pushed record of one's own is no reason to read", file: "learn.go",
		old: "		c.k.unsure = true\n		c.f.reads.hurry()\n", new: "", caughtBy: "TestRule08PushedRecordIsRead"},
	{name: "TermExpiry shrinks", file: "writes.go",
		old: "	if e.TermExpiry.Before(r.expiry) {\n		e.TermExpiry = r.expiry\n	}", new: "", caughtBy: "TestRule01"},
	{name: "term counted from the answer", file: "writes.go",
		old: "now.wall.Add(c.cfg.TermLength).UTC()", new: "now.wall.Add(c.cfg.TermLength + c.cfg.MaxClockSkew).UTC()", caughtBy: "TestRule01"},
	{name: "released before the callbacks returned", file: "leader.go",
		old: "	if r.callbacks > 0 {\n		return\n	}\n", new: "", caughtBy: "TestContractOnElected|TestRule13Drain"},
	{name: "view alive at the release", file: "leader.go",
		old: "	r.view.end()\n	r.ousting()\n	c.leadership", new: "	r.ousting()\n	c.leadership", caughtBy: "TestRule13DrainsBefore"},
	{name: "campaign while callbacks run", file: "candidate.go",
		old: "if c.leadership != nil || !c.wants(wake.now) || c.lags() {", new: "if !c.wants(wake.now) || c.lags() {", caughtBy: "TestRule05NoCampaign"},
	{name: "wall clock ignored", file: "timeview.go",
		old: "left > 0 && wall > 0 &&", new: "left > 0 &&", caughtBy: "TestRule02Suspended"},
	{name: "monotonic clock ignored", file: "timeview.go",
		old: "left := s.mono - elapsed\n", new: "left := time.Duration(1)\n	_ = elapsed\n", caughtBy: "TestRule02WallClockSetBack"},
	{name: "no latch", file: "timeview.go",
		old: "		if t.state.CompareAndSwap(s, &end) {\n			return false\n		}\n", new: "		_ = end\n		return false\n", caughtBy: "TestRule03"},
	{name: "older records believed", file: "knowledge.go",
		old: "newer = k.latest == nil || e.Compare(k.latest) > 0", new: "newer = true", caughtBy: "TestRule07Older"},
	{name: "a lagging replica is believed each time", file: "answers.go",
		old: "return c.refused.void != nil && ", new: "return false && ", caughtBy: "TestRule05Lagging"},
	{name: "acquired without reading again", file: "candidate.go",
		old: "(k.base.Vacant() || at.reached(k.readAt))", new: "true", caughtBy: "TestRule05Reads"},
	{name: "acquired by what was known before", file: "candidate.go",
		old: "return !k.unsure && at.reached(k.baseAt) &&", new: "return !k.unsure &&", caughtBy: "TestRule05Reads"},
	{name: "number from the record alone", file: "writes.go",
		old: "ElectionNumber:   c.maxSeen + 1", new: "ElectionNumber:   c.k.base.ElectionNumber + 1", caughtBy: "TestRule10Numbers"},
	{name: "number bumped by extensions", file: "writes.go",
		old: "	e.ElectionNumber = r.number\n", new: "", caughtBy: "TestRule08LostAnswer|TestRule11Extends|TestRule12Standbys"},
	{name: "LeaderID trusted for Incarnation", file: "learn.go",
		old: "case news, e.ElectionNumber == r.number && e.Incarnation != c.incarnation:", new: "case news && e.LeaderID != c.cfg.LeaderID:", caughtBy: "TestRule09Ousted"},
	{name: "lost race taken for a loss", file: "answers.go",
		old: "	c.k.unsure = true\n	c.writes.failed(a.start.mono)\n", new: "	c.k.unsure = true\n	c.writes.failed(a.start.mono)\n	if c.leadership != nil && errors.Is(a.err, ErrLostRace) {\n		c.endLeadership(now, ErrOusted)\n	}\n", caughtBy: "TestRule09ErrLostRace"},
	{name: "lost answer taken for a loss", file: "answers.go",
		old: "	c.k.unsure = true\n	c.writes.failed(a.start.mono)\n", new: "	c.k.unsure = true\n	c.writes.failed(a.start.mono)\n	if c.leadership != nil {\n		c.endLeadership(now, ErrOusted)\n	}\n", caughtBy: "TestRule08LostAnswerIs"},
	{name: "extension over another's record", file: "writes.go",
		old: "b.Incarnation == c.incarnation || c.claimableAt(b).reached(now)", new: "b.Incarnation != \"\" || c.claimableAt(b).reached(now)", caughtBy: "TestRule10NoExtension"},
	{name: "leadership by an acquisition that comes too late", file: "leader.go",
		old: "	if !r.view.ValueInFuture() {\n", new: "	if false {\n", caughtBy: "TestRule08Acquisition"},
	{name: "leadership while stopping", file: "learn.go",
		old: "	if acquired && c.wants(now) {", new: "	if acquired {", caughtBy: "TestRule14"},
	{name: "ctx ends only with the store's answer", file: "leader.go",
		old: "if !r.over && !r.view.ValueInFuture() {", new: "if !r.over && c.f.call == nil && c.f.hanging == 0 && !r.view.ValueInFuture() {", caughtBy: "TestRule04"},
	{name: "Transfer cuts the term", file: "handover.go",
		old: "	request.Extension++\n", new: "	request.Extension++\n	request.TermExpiry = now\n", caughtBy: "TestRule18TransferFrom"},
	{name: "Transfer does not raise the order", file: "handover.go",
		old: "	request.Extension++\n", new: "", caughtBy: "TestRule18TransferFrom"},
	{name: "no cooldown", file: "candidate.go",
		old: "(now.mono >= c.cooldown || c.named())", new: "true", caughtBy: "TestRule15"},
	{name: "no reservation for the Successor", file: "writes.go",
		old: "		e.TermExpiry = e.TermExpiry.Add(c.cfg.TermLength)\n", new: "", caughtBy: "TestRule19Reservation"},
	{name: "late health counts", file: "health.go",
		old: "	if a.check.late {\n", new: "	if false {\n", caughtBy: "TestRule16"},
	{name: "hanging calls pile up", file: "follower.go",
		old: "return f.hanging < maxAbandoned", new: "return true", caughtBy: "TestRule11Hung"},
	{name: "no back-off", file: "backoff.go",
		old: "r.notBefore = max(r.notBefore, start+pause, r.floor)", new: "_ = pause", caughtBy: "TestRule11Outages"},
	{name: "what is found out between failures forgets them all", file: "backoff.go",
		old: "r.fails, r.notBefore = 0, r.floor", new: "r.fails, r.notBefore = 0, 0", caughtBy: "TestRule11FourFailing"},
	{name: "second cause, second OnOusting", file: "leader.go",
		old: "	if r.cause != nil {\n		return\n	}\n	r.cause = cause", new: "	r.cause = cause", caughtBy: "TestContractOneCause"},
	{name: "a clock that is ahead passes", file: "internal/skew/skew.go",
		old: "case lowest > c.bound:", new: "case false:", caughtBy: "TestClockSkewKeeps"},
	{name: "a clock that is behind passes", file: "internal/skew/skew.go",
		old: "if highest < -c.bound {", new: "if false {", caughtBy: "TestClockSkewKeeps"},
	{name: "a wrong clock's own write extends the view", file: "learn.go",
		old: "	c.endWrong(now, c.clockFault(now))\n", new: "", caughtBy: "TestClockSkewEnds"},
	{name: "a wrong clock begins a leadership", file: "candidate.go",
		old: "&& !c.clockWrong(now) ", new: "", caughtBy: "TestClockSkewKeeps"},
	{name: "a wrong clock takes the lease again and again", file: "clockcheck.go",
		old: "		h.wall = h.wall.Add(k.lead)\n", new: "", caughtBy: "TestClockSkewDisturbs"},
	{name: "what was taken too early is not noticed", file: "clockcheck.go",
		old: "	if early {\n", new: "	if early && false {\n", caughtBy: "TestClockSkewKeepsWhat"},
	{name: "what was taken too early is released at once", file: "candidate.go",
		old: "!c.wants(now) && !c.keeping(now)", new: "!c.wants(now)", caughtBy: "TestClockSkewKeepsWhat"},
	{name: "only the store's time shows what was taken too early", file: "clockcheck.go",
		old: "		early = c.clock.check.Doubts()\n", new: "", caughtBy: "TestClockSkewKeepsByItsOwn"},
	{name: "what was taken too early is released once a feed has told of a request", file: "learn.go",
		old: "(e.Compare(c.k.latest) >= 0 || oneTerm(e, c.k.latest))", new: "e.Compare(c.k.latest) >= 0", caughtBy: "TestClockSkewKeepsThoughARequest|TestRule18RequestOvertakes"},
	{name: "a request that overtakes the answer is ignored", file: "learn.go",
		old: "s := c.k.latest.Successor;", new: "s := e.Successor;", caughtBy: "TestClockSkewKeepsAndGrants"},
	{name: "a request is forgotten while what was taken too early is kept", file: "learn.go",
		old: "max(now.mono, c.clock.keepUntil) + c", new: "now.mono + c", caughtBy: "TestClockSkewKeepsAndGrants"},
	{name: "a request that comes after the view is ignored", file: "learn.go",
		old: "	if s := c.k.latest.Successor; s", new: "	if s := c.k.latest.Successor; acquired && s", caughtBy: "TestRule18RequestAfter"},
	{name: "an open acquisition is forgotten before the longer term that it took", file: "attempts.go",
		old: "} else if wake.now.mono >= a.taken.alive {", new: "} else {", caughtBy: "TestClockSkewKeepsForALonger"},
	{name: "stopping leaves behind what was taken too early", file: "campaign.go",
		old: "c.idleSince, c.clock.keepUntil)", new: "c.idleSince)", caughtBy: "TestClockSkewStops"},
	{name: "only what was read counts as taken", file: "clockcheck.go",
		old: "[]*RaceEntry{c.k.latest, c.k.base} {", new: "[]*RaceEntry{c.k.base} {", caughtBy: "TestClockSkewKeepsWhatWasSetBack"},
	{name: "reserved by a clock that is known to be ahead", file: "writes.go",
		old: "now.wall.Add(-c.clock.check.Ahead(now.reading(), 0))", new: "now.wall", caughtBy: "TestClockSkewReserves"},
	{name: "a wrong clock says when its record is over", file: "candidate.go",
		old: " || c.clockFault(now) != nil)", new: ")", caughtBy: "TestClockSkewGoesOnReleasing"},
	{name: "right for what it showed before it was set back", file: "internal/skew/skew.go",
		old: "lowest+min(c.stepped(now)-c.stepped(*begun), 0) >= -c.bound", new: "lowest >= -c.bound", caughtBy: "TestClockSkewSetBackMeanwhile"},
	{name: "stopping is measured by the wall clock alone", file: "campaign.go",
		old: "	return wake.now.mono >= until\n", new: "	return false\n", caughtBy: "TestRule13ReleaseGivenUpBy"},
	{name: "a repaired clock leads by what it took too early", file: "candidate.go",
		old: "!c.clockWrong(now) && !c.keeping(now)", new: "!c.clockWrong(now)", caughtBy: "TestClockSkewKeepsThough"},
	{name: "a wall clock set back hides a suspend", file: "timeview.go",
		old: " && (s.apart == 0 || time.Duration(wall)-left <= s.apart)", new: "", caughtBy: "TestUnsynchronizedLeaders"},
	{name: "a proof counts for ever", file: "internal/skew/skew.go",
		old: "c.ahead.offset > 0 && now.Mono < c.ahead.until", new: "c.ahead.offset > 0", caughtBy: "TestClockSkewProof"},
	{name: "a slow write makes one forget", file: "internal/skew/skew.go",
		old: "max(lowest, c.Ahead(*begun, 0))", new: "lowest", caughtBy: "TestClockSkewStrongest"},
	{name: "drift taken for a step", file: "clockcheck.go",
		old: "Ahead(wake.now.reading(), skew.MaxDrift)", new: "Ahead(wake.now.reading(), 0)", caughtBy: "TestClockSkewDrift"},
	{name: "no proof is disproved", file: "internal/skew/skew.go",
		old: "		c.ahead.offset, c.ahead.step, c.ahead.at = highest, c.stepped(now), now.Mono\n", new: "", caughtBy: "TestClockSkewShrinks|TestClockSkewIsDisproved"},
	{name: "coarse stamps taken for exact", file: "internal/skew/skew.go",
		old: "	return unit - 1\n", new: "	return 0\n", caughtBy: "TestClockSkewByCoarse"},
	{name: "the clock's own bound ignored", file: "internal/skew/skew.go",
		old: "	if c.own > c.bound {", new: "	if false {", caughtBy: "TestClockSkewByTheClocks"},
	{name: "own reads prove nothing", file: "attempts.go",
		old: "	return l.match(e)\n", new: "	return nil\n", caughtBy: "TestClockSkewKeeps|TestClockSkewOfALost"},
	{name: "a request hides whose write it was", file: "attempts.go",
		old: "a.number == e.ElectionNumber && a.ext <= e.Extension", new: "a.number == e.ElectionNumber && a.ext == e.Extension", caughtBy: "TestClockSkewKeepsDespite|TestAttemptsMatch"},
	{name: "no allowance for drift", file: "knowledge.go",
		old: "		h.mono += k.drift(e)\n", new: "", caughtBy: "TestUnsynchronizedFailOver"},
	{name: "waits from the read's start", file: "knowledge.go",
		old: "k.sight(e, now.mono, newer)", new: "k.sight(e, at.mono, newer)", caughtBy: "TestUnsynchronizedWaits"},
	{name: "the mark is not recorded", file: "writes.go",
		old: "		Unsynchronized:   c.cfg.Unsynchronized,\n", new: "", caughtBy: "TestUnsynchronizedFailOver|TestUnsynchronizedMark"},
	{name: "the mark binds nobody else", file: "knowledge.go",
		old: "if k.unsynchronized || e.Unsynchronized {", new: "if k.unsynchronized {", caughtBy: "TestUnsynchronizedMark"},
	{name: "wall clocks compared though unsynchronized", file: "knowledge.go",
		old: "if k.unsynchronized || e.Unsynchronized {", new: "if e.Unsynchronized {", caughtBy: "TestUnsynchronizedChallenger"},
	{name: "numbers past their end are believed", file: "follower.go",
		old: "	if err := e.damaged(); err != nil {\n", new: "	if err := e.damaged(); false {\n", caughtBy: "TestRule20Numbers"},
	{name: "the last number is counted past", file: "follower.go",
		old: "a.err = k.entry.damaged(); a.err == nil", new: "a.err = nil; a.err == nil", caughtBy: "TestRule20Numbers|TestRule20TheLast"},
	{name: "PollInterval without an end", file: "leaderelection.go",
		old: "min(max(c.PollInterval, minPoll), MaxTermLength)", new: "max(c.PollInterval, minPoll)", caughtBy: "TestRule20Extremes"},
	{name: "DrainTimeout without an end", file: "leaderelection.go",
		old: "	c.DrainTimeout = min(c.DrainTimeout, MaxTermLength)\n", new: "", caughtBy: "TestRule20Extremes"},
	{name: "another's TermLength without an end", file: "knowledge.go",
		old: "return min(e.TermLength, MaxTermLength)", new: "return e.TermLength", caughtBy: "TestRule20Extremes"},
	{name: "reserved for as long as the record says", file: "knowledge.go",
		old: "		h.sooner = k.firstSeen(e) + k.termOf(e) + k.drift(e)\n", new: "", caughtBy: "TestRule20Extremes"},
	{name: "stamps of no clock are believed", file: "internal/skew/skew.go",
		old: " && wall.Sub(stamp).Abs() <= maxAge", new: "", caughtBy: "TestRule20Extremes"},
	{name: "a forgotten skew is none", file: "leaderelection.go",
		old: "return DefaultMaxClockSkew", new: "return 0", caughtBy: "TestRule20Forgotten"},
	{name: "Wait leaves Healthy behind", file: "campaign.go",
		old: "		k.cancel()\n		return false\n", new: "		k.cancel()\n", caughtBy: "TestContractWait"},
	{name: "only what was read last is released", file: "candidate.go",
		old: " || c.holdsBy(now, c.k.latest)", new: "", caughtBy: "TestRule13ReleasesDespite"},
	{name: "a release is tried for a whole term", file: "campaign.go",
		old: "min(c.cfg.TermLength, leaveTime)", new: "c.cfg.TermLength", caughtBy: "TestRule13ReleaseGivenUp"},
	{name: "reads that work hide writes that are refused", file: "follower.go",
		old: "worked := &f.wrote", new: "worked := &f.worked", caughtBy: "TestRule17Writes"},
	{name: "a request counts as a sign of life", file: "knowledge.go",
		old: "e.LeaderID == o.LeaderID && e.TermExpiry", new: "e.LeaderID == o.LeaderID && e.Extension == o.Extension && e.TermExpiry", caughtBy: "TestUnsynchronizedTransferToTheDead"},
	{name: "stale reads count as signs of life", file: "knowledge.go",
		old: "case !k.sighted(e):", new: "default:\n		k.newest.at = now", caughtBy: "TestUnsynchronizedLaggingReads"},
	{name: "only newer records count as seen", file: "knowledge.go",
		old: "		k.older = append(k.older, sighting{e, now})\n", new: "		k.older = append(k.older, sighting{e, k.newest.at})\n", caughtBy: "TestUnsynchronizedStoreSetBack"},
	{name: "set back by ten times the allowance", file: "writes.go",
		old: "a.end.apart = max(drift", new: "a.end.apart = 10 * max(drift", caughtBy: "TestUnsynchronizedSetBackThen"},
	{name: "a suspend is forgotten when the clock is set back", file: "leader.go",
		old: "		r.view.replace(s, tighten(s, now))\n", new: "		_ = s\n", caughtBy: "TestUnsynchronizedSuspendedThen"},
	{name: "a suspend during an extension is forgotten", file: "leader.go",
		old: "		a.end = tighten(a.end, now)\n", new: "		_ = a\n", caughtBy: "TestUnsynchronizedSuspendedThen"},
	{name: "a reservation that is known shortens the wait for who is read", file: "deadline.go",
		old: "	if h.sooner > 0 && o.sooner > 0 {\n		h.sooner = max(h.sooner, o.sooner)\n	} else {\n		h.sooner = 0\n	}\n", new: "	h.sooner = max(h.sooner, o.sooner)\n", caughtBy: "TestRule05StoreSetBackTo"},
	{name: "the first wall time of two counts", file: "deadline.go",
		old: "if o.wall.After(h.wall) {", new: "if h.wall.IsZero() {", caughtBy: "TestRule05StoreSetBackTo"},
	{name: "only what was read is waited for", file: "candidate.go",
		old: "[]*RaceEntry{c.k.latest, c.k.base} {", new: "[]*RaceEntry{c.k.base} {", caughtBy: "TestRule05StoreSetBackUnder"},
	{name: "old sightings outlast the newest", file: "knowledge.go",
		old: "k.newest, k.older = sighting{e, now}, nil", new: "k.newest = sighting{e, now}", caughtBy: "TestUnsynchronizedStoreSetBackTwice"},
	{name: "a late refusal counts as a read", file: "answers.go",
		old: "	case a.abandoned && !a.givenUp: // its outcome is an open question already\n", new: "", caughtBy: "TestRule08LateAnswers"},
	{name: "a late success closes a later question", file: "answers.go",
		old: "	if !a.abandoned {\n		c.k.unsure = false\n	}\n", new: "	c.k.unsure = false\n", caughtBy: "TestRule08LateAnswers"},
	{name: "reads count from their answer", file: "answers.go",
		old: "	c.learn(a.got, a.start, now, wasRead)", new: "	c.learn(a.got, now, now, wasRead)", caughtBy: "TestRule05ReadsCount"},
	{name: "open writes of one order", file: "attempts.go",
		old: "			ext = max(ext, a.ext)\n", new: "", caughtBy: "TestRule07OpenWrites"},
	{name: "a release without asking first", file: "candidate.go",
		old: "	case c.k.unsure:\n		c.f.read(wake, 0)\n	case b.Vacant()", new: "	case b.Vacant()", caughtBy: "TestRule08ReleaseReads"},
	{name: "a write that a read has shown does not count as working", file: "leader.go",
		old: "	c.f.wrote = true // as a read may have shown\n", new: "", caughtBy: "TestRule17WritesRefused"},
	{name: "two attempts with one TermExpiry", file: "writes.go",
		old: "		e.TermExpiry = r.expiry.Add(1) // it says which write this is, not more\n", new: "", caughtBy: "TestUnsynchronizedAttempts"},
	{name: "a request that meets an acquisition is ignored", file: "learn.go",
		old: "		c.cooldown = max(now.mono, c.clock.keepUntil) + c.cfg.TermLength\n", new: "", caughtBy: "TestRule18RequestMeets"},
	{name: "stopping forgets an acquisition while a call hangs", file: "answers.go",
		old: "c.stopping && c.f.hanging == 0 {", new: "c.stopping {", caughtBy: "TestRule14StoppingRemembers"},
	{name: "health older than a write counts", file: "health.go",
		old: "	c.health.fresh = c.health.fresh && !a.check.stale\n", new: "", caughtBy: "TestRule16HealthOlder"},
	{name: "the monotonic end is ignored on clocks that carry it", file: "clock.go",
		old: "return wall, wall.Sub(t.epoch)", new: "return wall, wall.Round(0).Sub(t.epoch.Round(0))", caughtBy: "TestRule02MonotonicReadings"},
	{name: "wall times keep their monotonic reading", file: "clock.go",
		old: "wall: wall.Round(0), mono", new: "wall: wall, mono", caughtBy: "TestRule0[124]MonotonicReadings"},
	{name: "moveOn does not ask whether the view is alive", file: "timeview.go",
		old: "		if !t.ValueInFuture() {\n			return false\n		}\n		old", new: "		old", caughtBy: "TestLatchAgainstMoveOn"},
	{name: "moveOn revives what was latched meanwhile", file: "timeview.go",
		old: "		if old.over {\n			return false\n		}\n", new: "", caughtBy: "TestLatchAgainstMoveOn"},
	{name: "end gives way to moveOn", file: "timeview.go",
		old: "		if s.over {\n			return\n		}\n		end := *s\n		end.over = true\n		if t.state.CompareAndSwap(s, &end) {\n			return\n		}\n", new: "		end := *s\n		end.over = true\n		t.state.CompareAndSwap(s, &end)\n		return\n", caughtBy: "TestLatchAgainstEnd"},
	{name: "Resign does not wait for an acquisition", file: "campaign.go",
		old: " || c.attempts.acquiring() {\n		return\n	}\n	for", new: " {\n		return\n	}\n	for", caughtBy: "TestContractResignWaits"},
	{name: "Resign waits for what is too late to begin a leadership", file: "attempts.go",
		old: "a.kind == OpAcquire && !a.late", new: "a.kind == OpAcquire", caughtBy: "TestContractResignAwaits"},
	{name: "a call that hangs keeps the release", file: "campaign.go",
		old: "		k.deadline = min(k.deadline, now.mono+c.f.timeout)\n", new: "		_ = k\n", caughtBy: "TestRule13ACall"},
	{name: "the stamps of what is known are not looked at", file: "learn.go",
		old: "	c.checkStamp(e, now)\n", new: "	if news {\n		c.checkStamp(e, now)\n	}\n", caughtBy: "TestClockSkewByTheAnswer"},
	{name: "a clock that is only warned of keeps what it took", file: "clockcheck.go",
		old: "if !c.checksClock() || c.cfg.WarnOnClockSkew {", new: "if !c.checksClock() {", caughtBy: "TestClockSkewWarned"},
	{name: "announcements without a pause", file: "candidate.go",
		old: "		due = min(due, r.confirmed+announceEvery)\n", new: "		due = wake.now.mono\n", caughtBy: "TestAnnounceIsPaced"},
	{name: "an announcement that backs off for nothing", file: "candidate.go",
		old: "	due = max(due, c.writes.notBefore)\n", new: "	if c.announces(c.k.base) {\n		due = max(due, c.writes.notBefore)\n	}\n", caughtBy: "TestAnnounceBacksOff"},
	{name: "an announcement waits for the next extension", file: "candidate.go",
		old: "if c.own(c.k.base) && !c.announces(c.k.base) {", new: "if false {", caughtBy: "TestAnnounceIsOne"},
	{name: "what is announced shares the caller's memory", file: "announce.go",
		old: "announced{slices.Clone(hostPort), slices.Clone(params)}", new: "announced{hostPort, params}", caughtBy: "TestAnnounceIsOne"},
	{name: "Leadership returns one that is over", file: "leadership.go",
		old: "t.ctx.Err() == nil && t.view.ValueInFuture()", new: "true", caughtBy: "TestLeadershipEnds"},
	{name: "Leadership is not woken", file: "leader.go",
		old: "	close(c.tenure.Swap(&tenure{ctx: r.ctx, view: r.view, next: make(chan struct{})}).next)\n", new: "	c.tenure.Store(&tenure{ctx: r.ctx, view: r.view, next: make(chan struct{})})\n", caughtBy: "TestLeadershipWithout"},
	{name: "an unsynchronized view by TermExpiry", file: "writes.go",
		old: "		if c.cfg.Unsynchronized {\n			// Its own", new: "		if false {\n			// Its own", caughtBy: "TestUnsynchronizedLeaders"},
}

// TestEveryMutantHasItsPlace finds the mutants that were left behind when the code moved,
// without building them.
func TestEveryMutantHasItsPlace(t *testing.T) {
	for _, m := range mutants {
		source, err := os.ReadFile(m.file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), m.old); n != 1 {
			t.Errorf("%s: %s has %d places that read\n%s", m.name, m.file, n, m.old)
		}
	}
}

// TestMutants builds each mutant and runs the tests that must catch it.
func TestMutants(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{}, 2)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			running <- struct{}{}
			defer func() { <-running }()
			source, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(source), m.old) != 1 {
				t.Fatalf("%s has %d places that read\n%s\nMove the mutant along with the code.", m.file, strings.Count(string(source), m.old), m.old)
			}
			broken := filepath.Join(t.TempDir(), filepath.Base(m.file))
			if err := os.WriteFile(broken, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay := filepath.Join(t.TempDir(), "overlay.json")
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(dir, m.file): broken}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(overlay, replace, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay="+overlay, "-timeout=12s", "-run=^("+m.caughtBy+")", ".").CombinedOutput()
			failed := regexp.MustCompile(`(?m)^--- FAIL: (\w+)`).FindStringSubmatch(string(out))
			switch {
			case err == nil:
				t.Errorf("survived %s", m.caughtBy)
			case failed != nil:
				t.Logf("caught by %s", failed[1])
			case strings.Contains(string(out), "panic: test timed out"):
				t.Log("caught by the deadline: it never came to rest")
			default:
				t.Errorf("the mutant did not run: %v\n%s", err, out[:min(len(out), 2000)])
			}
		})
	}
}
