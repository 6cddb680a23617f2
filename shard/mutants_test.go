//go:build go1.25

package shard

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutants are this package with one mistake in it each, and the test that must see it.
var mutants = []struct{ name, file, old, new, caughtBy string }{
	{"rule 1: a token that was let go is owned again", "session.go", "case p.token <= s.floor[name] || o", "case o", "^TestRule01"},
	{"rule 1: shards of an earlier session are owned", "assignment.go", "return s.SessionID == id })", "return s.Seat == id.Seat })", "^TestRule01"},
	{"rule 1: what is named no more is owned still", "session.go", "		s.drop(o, ErrMoved)\n	}\n	for _, i := range fresh", "		_ = o\n	}\n	for _, i := range fresh", "^TestRule01"},
	{"rule 1: asked before it was owned, and owned then", "session.go", "			s.floor[name] = p.token\n			letGo", "			letGo", "^TestRule01"},
	{"rule 1: a greater token is taken for the one that is owned", "session.go", "case o != nil && o.token == p.token:", "case o != nil && o.token <= p.token:", "^TestRule01"},
	{"rule 1: a smaller token than the one that is owned is owned", "session.go", " || o != nil && p.token < o.token:", ":", "^TestRule01"},
	{"rule 1: what was let go is forgotten over an older token", "session.go", "s.floor[o.name] = max(s.floor[o.name], o.token)", "s.floor[o.name] = o.token", "^TestRule01"},
	{"told while it reads, and not read again", "session.go", "	if s.again && !s.reading {", "	s.again = s.again && !s.reading\n	if s.again {", "^TestToldWhile"},
	{"rule 2: an older assignment is news", "session.go", "r.a.version < known.version || ", "", "^TestRule02"},
	{"rule 3: a session that has lapsed is taken for ended", "facts.go", "return s != nil && s.over >= id.Number", "return s != nil && (s.over >= id.Number || s.lapsed)", "^TestRule03"},
	{"rule 3: a session that has ended is alive again", "facts.go", "	}\n	s.over = max(s.over, over)\n", "	}\n	s.over = over\n", "^TestFacts"},
	{"rule 3: letting go of an older token is enough", "facts.go", "s.info.LetGo[shard] >= token", "s.info.LetGo[shard] > 0", "^TestRule03"},
	{"rule 3: whoever is asked has let go", "next.go", "if n.facts.ended(id) || n", "if p.releasing || n.facts.ended(id) || n", "^TestRule03"},
	{"rule 3: pushed records of unknown sessions are facts", "watcher.go", "if w.last != nil && sameSession(e, w.last) {", "if true {", "^TestRule03Undone"},
	{"rule 4: the token stays", "next.go", "placed{n.session[to], p.token + 1, false}", "placed{n.session[to], max(p.token, 1), false}", "^TestRule04|^TestShare"},
	{"rule 4: tokens of shards that are gone are forgotten", "next.go", "a.retired = max(a.retired, p.token)", "", "^TestRule04"},
	{"rule 4: a shard that is to go, goes though it is owned", "next.go", "if name := a.shards.Name(i); p.session != none && want", "if name := a.shards.Name(i); false && want", "^TestRule04"},
	{"rule 5: said before the view has ended", "session.go", "\to.over.Store(true)\n\to.cancel(cause)\n", "\to.cancel(cause)\n", "^TestRule05|^TestShare"},
	{"rule 5: not drained", "session.go", "o.drainBy = time.Now().Add(s.m.cfg.DrainTimeout)", "o.drainBy = time.Now()", "^TestRule05"},
	{"rule 5: drained anew by each assignment", "session.go", "if p.releasing && o.drainBy.IsZero() {", "if p.releasing {", "^TestRule05"},
	{"rule 6: no view to drain with", "session.go", "for _, o := range s.owned { // their ctx has ended with the session's\n", "for _, o := range s.owned {\n		o.over.Store(true)\n", "^TestRule06"},
	{"rule 6: left while a callback runs", "session.go", "s.helpers > 0 || len(s.winding) > 0", "s.helpers > 0", "^TestOneCallback"},
	{"rule 6: acted on when its callback has returned", "session.go", "		case o := <-s.returned:\n			o.over.Store(true)\n", "		case o := <-s.returned:\n", "^TestRule06"},
	{"two callbacks of one shard", "session.go", "			return // never two callbacks of one shard: ended begins it\n", "			_ = w\n", "^TestOneCallback"},
	{"rule 9: seats are not sealed", "coordinator.go", "if !s.lapsed || s.entry.Vacant() || s.sealing != nil {", "if true {", "^TestRule09"},
	{"rule 9: a seat is sealed once and never again", "coordinator.go", "		s.sealing = nil\n", "", "^TestRule09"},
	{"told of the same again, and alive again", "facts.go", "	if e.Compare(known) <= 0 {", "	if e.Compare(known) < 0 {", "^TestFacts"},
	{"a term that is not compared with clocks seems over though extended", "watcher.go", "	if w.last == nil || w.last.Compare(e) != 0 {\n		w.since", "	if w.last == nil {\n		w.since", "^TestLapses"},
	{"a watch that was refused is not taken up again", "watcher.go", "			w.c.rest(cfg.TermLength)\n", "			return\n", "^TestSeatsRecord"},
	{"an assignment is written without its condition", "coordinator.go", "			next.token = c.empty\n", "", "^TestWritesAre"},
	{"rule 11: what was let go is said for ever", "session.go", "\tletGo := map[string]uint64{}\n\tvar fresh", "\tletGo := s.letGo\n\tvar fresh", "^TestRule05"},
	{"rule 11: more is said than fits", "letgo.go", "room < 0 && len(said) > 0", "room < 0 && len(said) < 0", "^TestRule11"},
	{"a Store that has failed for a seat is not asked again", "coordinator.go", "			c.rest(c.m.cfg.TermLength / 2)\n", "			return\n", "^TestStoreFails"},
	{"a Store that hangs is called again", "stores.go", "		s.opening[name] = o\n", "", "^TestStoreIsCalledOnce"},
	{"rule 12: two contents of one version", "session.go", "case known != nil && r.a.version == known.version:", "case false:", "^TestRule12TwoContents"},
	{"rule 12: what the store has lost is not written again", "coordinator.go", "restored.token, restored.restored = token, true", "restored = read", "^TestRule12SetBack"},
	{"a reset forgets the tokens of shards", "reset.go", "token: max(p.token, r.after)}", "token: max(0*p.token, r.after)}", "^TestReset"},
	{"a reset forgets the tokens of shards that are gone", "reset.go", "max(a.retired, r.after)", "a.retired", "^TestReset"},
	{"a reset writes an older version", "reset.go", "max(e.ElectionNumber, leaderelection.ElectionNumber(time.Now().Unix()))+1", "e.ElectionNumber+1", "^TestReset"},
	{"a reset while a member's term runs", "reset.go", "!used && k >= least {", "used || k >= least {", "^TestReset"},
	{"a reset where seats were deleted under a member", "reset.go", "r.isFree(ctx, coordinatorName)", "r.isFree(ctx, seatName(0))", "^TestReset"},
	{"a reset over an election's record", "reset.go", "case !e.Vacant():\n\t\treturn unclear", "case false:\n\t\treturn unclear", "^TestReset"},
	{"the plan ignores who has what", "plan.go", "return keepsI\n", "return keepsJ\n", "^TestPlan"},
	{"a full member is given more", "next.go", "return c > 0 && has >= c", "return c > 0 && has > c", "^TestCapacity"},
	{"what waits for a full member for good is not homeless", "next.go", "		if moving[i] == 0 {", "		if false && moving[i] == 0 {", "^TestCapacity"},
	{"calls that hang pile up", "stores.go", "if s.calls[name] >= maxCalls {", "if false {", "^TestHangingCalls"},
	{"seats of one record have no end", "member.go", "twice && e.Incarnation != \"\"", "twice && false", "^TestOneRecord"},
	{"the plan ignores capacity", "plan.go", "return c == 0 || q.load[i] < c", "return c == 0 || i >= 0", "^TestPlanLimits"},
}

// TestMutants builds each mutant, and runs the test that must catch it.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			source, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Fatalf("%s has %d places that read\n%s\nMove the mutant along with the code.", m.file, n, m.old)
			}
			dir := t.TempDir()
			changed, bin := filepath.Join(dir, m.file), filepath.Join(dir, "mutant")
			here, err := filepath.Abs(m.file)
			if err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{here: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{changed: strings.Replace(string(source), m.old, m.new, 1), filepath.Join(dir, "overlay"): string(overlay)} {
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := exec.Command("go", "test", "-c", "-o", bin, "-overlay", filepath.Join(dir, "overlay"), ".").CombinedOutput(); err != nil {
				t.Fatalf("it does not compile: %v\n%s", err, out)
			}
			out, err := exec.Command(bin, "-test.run", m.caughtBy, "-test.timeout", "2m").CombinedOutput()
			if err == nil {
				t.Errorf("it survives:\n%s", out)
			}
		})
	}
}
