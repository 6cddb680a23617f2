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
	{name: "no skew margin for the challenger", file: "horizon.go",
		old: "h.wall = h.wall.Add(f.skew)", new: "_ = f.skew", caughtBy: "TestRule05Challenger|TestRule06"},
	{name: "view not cut by the skew", file: "writes.go",
		old: "e.TermExpiry.Add(-c.cfg.MaxClockSkew))", new: "e.TermExpiry)", caughtBy: "TestRule02ViewEnds"},
	{name: "monotonic end not cut by the skew", file: "writes.go",
		old: "c.cfg.TermLength-c.cfg.MaxClockSkew, e.Term", new: "c.cfg.TermLength, e.Term", caughtBy: "TestRule02WallClockSetBack"},
	{name: "any own record confirms a write", file: "writes.go",
		old: "a.expiry.Equal(e.TermExpiry) && a.start >= r.confirmed", new: "a.start >= r.confirmed", caughtBy: "TestRule08Own"},
	{name: "TermExpiry shrinks", file: "writes.go",
		old: "	if e.TermExpiry.Before(r.expiry) {\n		e.TermExpiry = r.expiry\n	}", new: "", caughtBy: "TestRule01"},
	{name: "term counted from the answer", file: "writes.go",
		old: "now.wall.Add(c.cfg.TermLength).UTC()", new: "now.wall.Add(c.cfg.TermLength + c.cfg.MaxClockSkew).UTC()", caughtBy: "TestRule01"},
	{name: "released before the callbacks returned", file: "reign.go",
		old: "	if r.callbacks > 0 {\n		return\n	}\n", new: "", caughtBy: "TestContractOnElected|TestRule13Drain"},
	{name: "view alive at the release", file: "reign.go",
		old: "	r.view.end()\n	r.ousting()\n	c.reign", new: "	r.ousting()\n	c.reign", caughtBy: "TestRule13DrainsBefore"},
	{name: "contest while callbacks run", file: "contest.go",
		old: "if c.reign != nil || !c.wants(wake.now) {", new: "if !c.wants(wake.now) {", caughtBy: "TestRule05NoContest"},
	{name: "wall clock ignored", file: "timeview.go",
		old: "return ns < s.wallNS && (s.fromNS == 0 || ns >= s.fromNS)", new: "return ns > 0", caughtBy: "TestRule02Suspended"},
	{name: "monotonic clock ignored", file: "timeview.go",
		old: "if t.mono.Monotonic() >= s.elapsed {", new: "if false {", caughtBy: "TestRule02WallClockSetBack"},
	{name: "no latch", file: "timeview.go",
		old: "		if t.state.CompareAndSwap(s, &end) {\n			return false\n		}\n", new: "		_ = end\n		return false\n", caughtBy: "TestRule03"},
	{name: "older records believed", file: "follow.go",
		old: "newer := f.known == nil || e.Compare(f.known) > 0", new: "newer := true", caughtBy: "TestRule07Older"},
	{name: "contested without reading again", file: "contest.go",
		old: "(f.base.Vacant() || at.reached(f.readAt))", new: "true", caughtBy: "TestRule05Reads"},
	{name: "contested by what was known before", file: "contest.go",
		old: "return !f.unsure && at.reached(f.baseAt) &&", new: "return !f.unsure &&", caughtBy: "TestRule05Reads"},
	{name: "number from the record alone", file: "writes.go",
		old: "ElectionNumber:   c.maxSeen + 1", new: "ElectionNumber:   c.f.base.ElectionNumber + 1", caughtBy: "TestRule10Numbers"},
	{name: "number bumped by extensions", file: "writes.go",
		old: "	e.ElectionNumber = r.number\n", new: "", caughtBy: "TestRule08LostAnswer|TestRule11Extends|TestRule12Standbys"},
	{name: "LeaderID trusted for Incarnation", file: "writes.go",
		old: "case news, e.ElectionNumber == r.number && e.Incarnation != c.incarnation:", new: "case news && e.LeaderID != c.cfg.LeaderID:", caughtBy: "TestRule09Ousted"},
	{name: "lost race taken for a loss", file: "writes.go",
		old: "	c.f.unsure = true\n	c.writes.failed(a.start.mono)\n", new: "	c.f.unsure = true\n	c.writes.failed(a.start.mono)\n	if c.reign != nil && errors.Is(a.err, ErrLostRace) {\n		c.endReign(a.now, ErrOusted)\n	}\n", caughtBy: "TestRule09ErrLostRace"},
	{name: "lost answer taken for a loss", file: "writes.go",
		old: "	c.f.unsure = true\n	c.writes.failed(a.start.mono)\n", new: "	c.f.unsure = true\n	c.writes.failed(a.start.mono)\n	if c.reign != nil {\n		c.endReign(a.now, ErrOusted)\n	}\n", caughtBy: "TestRule08LostAnswerIs"},
	{name: "extension over another's record", file: "writes.go",
		old: "b.Incarnation == c.incarnation || c.claimableAt(b).reached(now)", new: "b.Incarnation != \"\" || c.claimableAt(b).reached(now)", caughtBy: "TestRule10NoExtension"},
	{name: "reign by an acquisition that comes too late", file: "reign.go",
		old: "	if !r.view.ValueInFuture() {\n", new: "	if false {\n", caughtBy: "TestRule08Acquisition"},
	{name: "reign while stopping", file: "writes.go",
		old: "		if c.wants(now) {\n			c.beginReign(now, a)", new: "		if true {\n			c.beginReign(now, a)", caughtBy: "TestRule14"},
	{name: "ctx ends only with the store's answer", file: "reign.go",
		old: "if !r.over && !r.view.ValueInFuture() {", new: "if !r.over && c.f.call == nil && c.f.hanging == 0 && !r.view.ValueInFuture() {", caughtBy: "TestRule04"},
	{name: "Transfer cuts the term", file: "handover.go",
		old: "	wish.Extension++\n", new: "	wish.Extension++\n	wish.TermExpiry = now\n", caughtBy: "TestRule18TransferFrom"},
	{name: "Transfer does not raise the order", file: "handover.go",
		old: "	wish.Extension++\n", new: "", caughtBy: "TestRule18TransferFrom"},
	{name: "no sitting out", file: "contest.go",
		old: "(now.mono >= c.sitOut || c.named())", new: "true", caughtBy: "TestRule15"},
	{name: "no reservation for the Successor", file: "writes.go",
		old: "		e.TermExpiry = e.TermExpiry.Add(c.cfg.TermLength)\n", new: "", caughtBy: "TestRule19Reservation"},
	{name: "late health counts", file: "health.go",
		old: "	if k.late {\n", new: "	if false {\n", caughtBy: "TestRule16"},
	{name: "hanging calls pile up", file: "follow.go",
		old: "return f.hanging < maxAbandoned", new: "return true", caughtBy: "TestRule11Hung"},
	{name: "no back-off", file: "loop.go",
		old: "r.notBefore = max(r.notBefore, start+pause)", new: "_ = pause", caughtBy: "TestRule11Outages"},
	{name: "second cause, second OnOusting", file: "reign.go",
		old: "	if r.cause != nil {\n		return\n	}\n	r.cause = cause", new: "	r.cause = cause", caughtBy: "TestContractOneCause"},
	{name: "a clock that is ahead passes", file: "clockcheck.go",
		old: "case lowest > skew:", new: "case false:", caughtBy: "TestClockSkewKeeps"},
	{name: "a clock that is behind passes", file: "clockcheck.go",
		old: "if highest < -skew {", new: "if false {", caughtBy: "TestClockSkewKeeps"},
	{name: "a wrong clock's own write extends the view", file: "writes.go",
		old: "	c.endWrong(now, c.clockFault(now))\n", new: "", caughtBy: "TestClockSkewEnds"},
	{name: "a wrong clock begins a reign", file: "contest.go",
		old: "&& !c.clockWrong(now) ", new: "", caughtBy: "TestClockSkewKeeps"},
	{name: "a wrong clock takes the lease again and again", file: "clockcheck.go",
		old: "		h.wall = h.wall.Add(k.lead)\n", new: "", caughtBy: "TestClockSkewDisturbs"},
	{name: "what was taken too early is left vacant", file: "writes.go",
		old: "	if c.handBack(e) {\n		return e\n	}\n", new: "", caughtBy: "TestClockSkewHandsBack"},
	{name: "handed back to anybody of that LeaderID", file: "contest.go",
		old: "	case e.Vacant() && e.HandedBack: // its view may be alive\n		return c.clock.late(c.f.ends(e))\n", new: "", caughtBy: "TestClockSkewHandsBackToTheProcess"},
	{name: "reserved by a clock that is known to be ahead", file: "writes.go",
		old: "now.wall.Add(-c.suspected(now, 0))", new: "now.wall", caughtBy: "TestClockSkewReserves"},
	{name: "a wrong clock says when its record is over", file: "contest.go",
		old: " || c.clockFault(now) != nil)", new: ")", caughtBy: "TestClockSkewGoesOnReleasing"},
	{name: "right for what it showed before it was set back", file: "clockcheck.go",
		old: "lowest+min(c.stepped(now)-c.stepped(a.begun), 0) >= -skew", new: "lowest >= -skew", caughtBy: "TestClockSkewSetBackMeanwhile"},
	{name: "what is handed back is taken again", file: "contest.go",
		old: "		return c.clock.late(c.f.ends(e))\n", new: "		return c.f.ends(e)\n", caughtBy: "TestClockSkewLeaves"},
	{name: "handed back for as long as a wrong clock says", file: "clockcheck.go",
		old: "most.Before(e.TermExpiry) {", new: "false {", caughtBy: "TestClockSkewHandsBackNoLonger"},
	{name: "stopping is measured by the wall clock alone", file: "campaign.go",
		old: "	return wake.now.mono >= until\n", new: "	return false\n", caughtBy: "TestRule13ReleaseGivenUpBy"},
	{name: "Transfer undoes a hand-back", file: "handover.go",
		old: "	case handedBack(e, now) && e.Successor != successor:\n		return nil, errHandedBack\n", new: "", caughtBy: "TestClockSkewHandBackOutlasts"},
	{name: "kept where the clock was set right meanwhile", file: "contest.go",
		old: " && !c.robs(now)", new: "", caughtBy: "TestClockSkewHandsBackThough"},
	{name: "handed back to oneself", file: "clockcheck.go",
		old: "	if base.Vacant() || base.Incarnation != incarnation {\n", new: "	{\n", caughtBy: "TestClockSkewHandsBackTheFirst"},
	{name: "a wall clock set back hides a suspend", file: "timeview.go",
		old: " && (s.fromNS == 0 || ns >= s.fromNS)", new: "", caughtBy: "TestUnsynchronizedLeaders"},
	{name: "a proof counts for ever", file: "clockcheck.go",
		old: "k.ahead.offset > 0 && now.mono < k.ahead.until", new: "k.ahead.offset > 0", caughtBy: "TestClockSkewProof"},
	{name: "a slow write makes one forget", file: "clockcheck.go",
		old: "max(lowest, c.suspected(a.begun, 0))", new: "lowest", caughtBy: "TestClockSkewStrongest"},
	{name: "drift taken for a step", file: "clockcheck.go",
		old: "c.suspected(wake.now, maxDrift)", new: "c.suspected(wake.now, 0)", caughtBy: "TestClockSkewDrift"},
	{name: "no proof is disproved", file: "clockcheck.go",
		old: "		k.ahead.offset, k.ahead.step, k.ahead.at = highest, c.stepped(now), now.mono\n", new: "", caughtBy: "TestClockSkewShrinks|TestClockSkewIsDisproved"},
	{name: "coarse stamps taken for exact", file: "clockcheck.go",
		old: "	return unit - 1\n", new: "	return 0\n", caughtBy: "TestClockSkewByCoarse"},
	{name: "the clock's own bound ignored", file: "clockcheck.go",
		old: "if k.bound > skew {", new: "if false {", caughtBy: "TestClockSkewByTheClocks"},
	{name: "own reads prove nothing", file: "clockcheck.go",
		old: "		if a.led(e) {\n			return a, true\n		}\n", new: "		_ = a\n", caughtBy: "TestClockSkewKeeps|TestClockSkewOfALost"},
	{name: "a wish hides whose write it was", file: "clockcheck.go",
		old: "a.ext <= e.Extension", new: "a.ext == e.Extension", caughtBy: "TestClockSkewOfAWish"},
	{name: "no allowance for drift", file: "horizon.go",
		old: "		h.mono += drift(f.termOf(e), f.skew)\n", new: "", caughtBy: "TestUnsynchronizedFailOver"},
	{name: "waits from the read's start", file: "follow.go",
		old: "f.seen = f.now().mono", new: "f.seen = at.mono", caughtBy: "TestUnsynchronizedWaits"},
	{name: "the mark is not recorded", file: "writes.go",
		old: "		Unsynchronized:   c.cfg.Unsynchronized,\n", new: "", caughtBy: "TestUnsynchronizedFailOver|TestUnsynchronizedMark"},
	{name: "the mark binds nobody else", file: "horizon.go",
		old: "if f.unsynchronized || e.Unsynchronized {", new: "if f.unsynchronized {", caughtBy: "TestUnsynchronizedMark"},
	{name: "wall clocks compared though unsynchronized", file: "horizon.go",
		old: "if f.unsynchronized || e.Unsynchronized {", new: "if e.Unsynchronized {", caughtBy: "TestUnsynchronizedChallenger"},
	{name: "an unsynchronized view by TermExpiry", file: "writes.go",
		old: "		if c.cfg.Unsynchronized {\n			// Its own", new: "		if false {\n			// Its own", caughtBy: "TestUnsynchronizedLeaders"},
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
			broken := filepath.Join(t.TempDir(), m.file)
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
