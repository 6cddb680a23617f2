//go:build go1.25

package rules

import "github.com/c8e606e4/leaderelection/internal/test/rules/mutants"

// documented are breakages of what the documentation promises apart from safety, each of which once
// passed all tests.
var documented = []mutants.Mutant{
	{Name: "nobody wakes when DrainTimeout is over",
		Edit: change{"} else {\n wake.at(r.drainUntil)\n }", "}"}, CaughtBy: "TestRule09OnOustingEnds"},
	{Name: "OnOusting comes before OnElected",
		Edit: change{"<-r.begun // never", "// never"}, CaughtBy: "TestContractOnOustingComes", Race: true},
	{Name: "a reservation that is over is taken for one",
		Edit: change{"e.Successor == successor && now.Before(e.TermExpiry) && !e", "e.Successor == successor && !e"}, CaughtBy: "TestRule18NilMeans"},
	{Name: "an operator's clock tells of an unsynchronized reservation",
		Edit: change{"now.Before(e.TermExpiry) && !e.Unsynchronized {", "now.Before(e.TermExpiry) {"}, CaughtBy: "TestRule18NilMeans"},
	{Name: "Transfer to a leader who was asked to go says nil",
		Edit: change{"case e.LeaderID == successor && e.Successor != \"\" && e.Successor != successor:", "case false:"}, CaughtBy: "TestRule18NilMeans"},
	{Name: "Watch merges two leaderships",
		Edit: change{"next.merge && d.mergeable == next.entry.ElectionNumber", "next.merge && d.mergeable != NoElections"}, CaughtBy: "TestWatchMergesNo"},
	{Name: "a store that has judged a write has not worked",
		Edit: change{"case a.err == nil || errors.Is(a.err, ErrLostRace):", "case a.err == nil:"}, CaughtBy: "TestRule17AJudged"},
	{Name: "LeaderChanged tells of no other incarnation",
		Edit: change{"t.LeaderID == e.LeaderID && (e.Vacant() || t.Incarnation == e.Incarnation) {", "t.LeaderID == e.LeaderID {"}, CaughtBy: "TestLeaderChangedTellsOfAnother"},
}
