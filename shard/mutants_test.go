//go:build go1.25

package shard

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/rules/mutants"
)

var here = mutants.Package{Code: []string{"."}, Tests: []string{"."}}

// TestMutants builds each mutant, and runs the test that must notice it.
func TestMutants(t *testing.T) { here.Run(t, planted) }

// TestEveryMutantHasItsPlace finds the mutants that were left behind when the code changed.
func TestEveryMutantHasItsPlace(t *testing.T) { here.Check(t, planted) }

type change = mutants.Edit

// planted are this package with one mistake in it each, and the test that must see it.
var planted = []mutants.Mutant{
	{Name: "rule 1: a token that was let go is owned again", Edit: change{"case p.token <= s.floor[name] || o", "case o"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: shards of an earlier session are owned", Edit: change{"return s.SessionID == id })", "return s.Seat == id.Seat })"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: what is named no more is owned still", Edit: change{"		s.drop(o, ErrMoved)\n	}\n	for _, i := range fresh", "		_ = o\n	}\n	for _, i := range fresh"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: asked before it was owned, and owned then", Edit: change{"			s.floor[name] = p.token\n			letGo", "			letGo"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: a greater token is taken for the one that is owned", Edit: change{"case o != nil && o.token == p.token:", "case o != nil && o.token <= p.token:"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: a smaller token than the one that is owned is owned", Edit: change{" || o != nil && p.token < o.token:", ":"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: what was let go is forgotten over an older token", Edit: change{"s.floor[o.name] = max(s.floor[o.name], o.token)", "s.floor[o.name] = o.token"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "told while it reads, and not read again", Edit: change{"			timer.Reset(wait)\n			select", "			timer.Reset(wait)\n			f.look = make(chan struct{}, 1)\n			select"}, CaughtBy: "TestToldWhile", Slow: true},
	{Name: "rule 2: an older assignment is news", Edit: change{"r.a.version < known.version || ", ""}, CaughtBy: "TestRule02", Slow: true},
	{Name: "rule 3: a session that has lapsed is taken for ended", Edit: change{"return s != nil && s.over >= id.Number", "return s != nil && (s.over >= id.Number || s.lapsed)"}, CaughtBy: "TestRule03", Slow: true},
	{Name: "a release that is heard without what came before it is not waited after", Edit: change{"		s.info, s.broken = nil, nil\n		return matters\n", "		return matters\n"}, CaughtBy: "TestReleaseThatIs", Slow: true},
	{Name: "rule 3: a session that has ended is alive again", Edit: change{"	}\n	s.over = max(s.over, over)\n", "	}\n	s.over = over\n"}, CaughtBy: "TestFacts", Slow: true},
	{Name: "rule 3: letting go of an older token is enough", Edit: change{"s.info.LetGo[shard] >= token", "s.info.LetGo[shard] > 0"}, CaughtBy: "TestRule03", Slow: true},
	{Name: "rule 3: pushed records of unknown sessions are facts", Edit: change{"if w.last != nil && sameSession(e, w.last) {", "if true {"}, CaughtBy: "TestRule03Undone", Slow: true},
	{Name: "rule 4: the token stays", Edit: change{"placed{n.session[to], p.token + 1, false}", "placed{n.session[to], max(p.token, 1), false}"}, CaughtBy: "TestRule04|TestShare", Slow: true},
	{Name: "rule 5: said before the view has ended", Edit: change{"\to.over.Store(true)\n\to.cancel(cause)\n", "\to.cancel(cause)\n"}, CaughtBy: "TestRule05|TestShare", Slow: true},
	{Name: "rule 5: not drained", Edit: change{"o.drainBy = time.Now().Add(s.m.cfg.DrainTimeout)", "o.drainBy = time.Now()"}, CaughtBy: "TestRule05", Slow: true},
	{Name: "rule 5: drained anew by each assignment", Edit: change{"if p.releasing && o.drainBy.IsZero() {", "if p.releasing {"}, CaughtBy: "TestRule05", Slow: true},
	{Name: "rule 9: seats are not sealed", Edit: change{"if !s.lapsed || s.entry.Vacant() || s.sealing != nil {", "if true {"}, CaughtBy: "TestRule09", Slow: true},
	{Name: "rule 9: a seat is sealed once and never again", Edit: change{"		s.sealing = nil\n", ""}, CaughtBy: "TestRule09", Slow: true},
	{Name: "told of the same again, and alive again", Edit: change{"	if e.Compare(known) <= 0 {", "	if e.Compare(known) < 0 {"}, CaughtBy: "TestFacts", Slow: true},
	{Name: "a term that is not compared with clocks seems over though extended", Edit: change{"	if w.last == nil || w.last.Compare(e) != 0 {\n		w.since", "	if w.last == nil {\n		w.since"}, CaughtBy: "TestLapses", Slow: true},
	{Name: "a watch that was refused is not taken up again", Edit: change{"failed(err)\n			sleep(ctx, pause)\n", "failed(err)\n			return\n"}, CaughtBy: "TestRecordsThat", Slow: true},
	{Name: "an assignment is written without its condition", Edit: change{"			next.token = c.empty\n", ""}, CaughtBy: "TestWritesAre", Slow: true},
	{Name: "rule 11: what was let go is said for ever", Edit: change{"\tletGo := map[string]uint64{}\n\tvar fresh", "\tletGo := s.letGo\n\tvar fresh"}, CaughtBy: "TestRule05", Slow: true},
	{Name: "rule 11: more is said than fits", Edit: change{"room < 0 && len(said) > 0", "room < 0 && len(said) < 0"}, CaughtBy: "TestRule11", Slow: true},
	{Name: "a Store that has failed for a seat is not asked again", Edit: change{"			sleep(c.ctx, c.m.cfg.TermLength/2)\n", "			return\n"}, CaughtBy: "TestStoreFails", Slow: true},
	{Name: "a Store that hangs is called again", Edit: change{"		s.opening[name] = o\n", ""}, CaughtBy: "TestStoreIsCalledOnce", Slow: true},
	{Name: "rule 12: two contents of one version", Edit: change{"case known != nil && r.a.version == known.version:", "case false:"}, CaughtBy: "TestRule12TwoContents", Slow: true},
	{Name: "rule 12: what the store has lost is not written again", Edit: change{"restored.token, restored.restored = token, true", "restored = read"}, CaughtBy: "TestRule12SetBack", Slow: true},
	{Name: "a reset forgets the tokens of shards", Edit: change{"token: max(p.token, after, born)}", "token: max(0*p.token, after, born)}"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset forgets the tokens of shards that are gone", Edit: change{"max(a.retired, after, born)", "max(a.retired, born)"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset writes an older version", Edit: change{"max(e.ElectionNumber, leaderelection.ElectionNumber(born))+1", "e.ElectionNumber+1"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset while a member's term runs", Edit: change{"!used && k >= named {", "used || k >= named {"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset where seats were deleted under a member", Edit: change{"s.isFree(ctx, coordinatorName)", "s.isFree(ctx, seatName(0))"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset over an election's record", Edit: change{"case !e.Vacant():\n\t\treturn unclear", "case false:\n\t\treturn unclear"}, CaughtBy: "TestReset", Slow: true},
	{Name: "the plan ignores who has what", Edit: change{"return keepsI\n", "return keepsJ\n"}, CaughtBy: "TestPlan", Slow: true},
	{Name: "a full member is given more", Edit: change{"return c > 0 && has >= c", "return c > 0 && has > c"}, CaughtBy: "TestCapacity", Slow: true},
	{Name: "what waits for a full member for good is not homeless", Edit: change{"		if moving[i] == 0 {", "		if false && moving[i] == 0 {"}, CaughtBy: "TestCapacity", Slow: true},
	{Name: "calls that hang pile up", Edit: change{"if s.calls[name] >= maxCalls {", "if false {"}, CaughtBy: "TestHangingCalls", Slow: true},
	{Name: "seats of one record have no end", Edit: change{"twice && other != k", "twice && other < 0"}, CaughtBy: "TestOneRecord", Slow: true},
	{Name: "the plan ignores capacity", Edit: change{"members[i].fits(load[i])", "(members[i].fits(load[i]) || i >= 0)"}, CaughtBy: "TestPlanLimits", Slow: true},
	{Name: "rule 3: whoever is asked has let go", Edit: change{"case n.facts.ended(s.SessionID):", "case p.releasing || n.facts.ended(s.SessionID):"}, CaughtBy: "TestRule03", Slow: true},
	{Name: "rule 4: tokens of shards that are gone are forgotten", Edit: change{"			} else {\n				a.retired = max(a.retired, p.token)", "			} else {"}, CaughtBy: "TestRule04", Slow: true},
	{Name: "rule 4: the last token of those that are gone counts", Edit: change{"			} else {\n				a.retired = max(a.retired, p.token)", "			} else {\n				a.retired = p.token"}, CaughtBy: "TestRule04", Slow: true},
	{Name: "rule 4: a shard that is to go, goes though it is owned", Edit: change{"if p.session != none {\n				held", "if false {\n				held"}, CaughtBy: "TestRule04", Slow: true},
	{Name: "rule 4: tokens of a record that is not there begin at 1", Edit: change{"a = &assignment{retired: uint64(born)}", "a = &assignment{}"}, CaughtBy: "TestRule04", Slow: true},
	{Name: "rule 6: no view to drain with", Edit: change{"for i, o := range s.owned { // their ctx has ended with the session's\n", "for i, o := range s.owned {\n		o.over.Store(true)\n"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 6: left while a callback runs", Edit: change{"return s.leaving && (!s", "return s.leaving || (s.leaving && !s"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 6: acted on when its callback has returned", Edit: change{"		s.settle(o.index, o)\n	}\n	s.m.mu.Lock()", "	}\n	s.m.mu.Lock()"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 5: let go while a request runs", Edit: change{"return o.running || o.inside.Load() != shutBit", "return o.running"}, CaughtBy: "TestRule05Request", Slow: true},
	{Name: "rule 5: requests enter what is to be let go", Edit: change{"	o.shut()\n	o.drainBy", "	o.drainBy"}, CaughtBy: "TestRule05Request", Slow: true},
	{Name: "rule 6: what is given to a member that leaves is owned", Edit: change{"case p.releasing || s.leaving:", "case p.releasing:"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 6: a member that leaves is given more", Edit: change{"info.Leaving || info.Numbered", "info.Numbered"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 7: a session that has ended waits for its callbacks", Edit: change{"(!s.view.ValueInFuture() || len", "(len"}, CaughtBy: "TestStuck", Slow: true},
	{Name: "rule 13: two numberings at a time", Edit: change{"		if n.renumber {\n			return\n		}\n", ""}, CaughtBy: "TestRule13", Slow: true},
	{Name: "rule 13: tokens of another numbering are forgotten", Edit: change{"			n.renumber = n.renumber || p.session != none\n			a.retired = max(a.retired, p.token)\n", "			n.renumber = n.renumber || p.session != none\n"}, CaughtBy: "TestRule13", Slow: true},
	{Name: "rule 13: given to a member that does not know the number", Edit: change{" || info.Numbered != n.next.shards.numbered", ""}, CaughtBy: "TestRule13", Slow: true},
	{Name: "two callbacks of one shard", Edit: change{"		return // never two callbacks of one shard: ended begins it\n", ""}, CaughtBy: "TestOneCallback", Slow: true},
	{Name: "a member believes a read that lags", Edit: change{"f.newest.Load() >= f.told.Load()", "f.told.Load() >= 0"}, CaughtBy: "TestMembersRead", Slow: true},
	{Name: "what was reported is not remembered until a read shows it", Edit: change{" && !f.told.CompareAndSwap(told, uint64(version));", " && version == 0;"}, CaughtBy: "TestMembersRead", Slow: true},
	{Name: "a failure is none", Edit: change{"info.Failed[name] != \"\"", "false"}, CaughtBy: "TestFailed", Slow: true},
	{Name: "a failure is for ever", Edit: change{"if wait := f.Until.Sub(n.now); wait > 0 {", "if wait := f.Until.Sub(n.now); true {"}, CaughtBy: "TestFailedShardsWait", Slow: true},
	{Name: "shards move with the polls", Edit: change{"f.moving > 0 && a.moves()", "f.moving > 0 && a == nil"}, CaughtBy: "TestHurries", Slow: true},
	{Name: "the coordinator polls as ever while shards move", Edit: change{"return hurried(cfg.TermLength) case", "return cfg.TermLength\n	case"}, CaughtBy: "TestMovesOn", Slow: true},
	{Name: "the coordinator polls as ever while a member may be back", Edit: change{"asked[k] || c.settling() && (s.info == nil || s.info.Leaving)", "asked[k]"}, CaughtBy: "TestPollSeesARestart", Slow: true},
	{Name: "a member that took long to leave has no heir", Edit: change{"s.info.Leaving && !before.Leaving); (came", "s.info.Leaving) && !before.Leaving; (came"}, CaughtBy: "TestSlowlyDrained", Slow: true},
	{Name: "a request for another numbering is served", Edit: change{"(o.of == 0 || unqualified(name, o.of) != number)", "false"}, CaughtBy: "TestKeyName"},
	{Name: "what is over may be acted on", Edit: change{"return o, o != nil && o.ValueInFuture()", "return o, o != nil"}, CaughtBy: "TestOwnedIs", Slow: true},
}
