package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/rules/mutants"
)

var core = mutants.Package{Code: []string{"../../../.."}, Tests: []string{"../../../.."}}

func TestMutants(t *testing.T) { core.Run(t, planted) }

func TestEveryMutantHasItsPlace(t *testing.T) { core.Check(t, planted) }

// planted are mistakes that an exploration must find. Other tests find them as well: these show that the explorer can.
var planted = explored([]mutants.Mutant{
	{Name: "no skew margin for the challenger", Edit: mutants.Edit{"wall := end{wall: r.TermExpiry.Add(hold + k.skew)}", "wall := end{wall: r.TermExpiry.Add(hold)}"}},
	{Name: "the view is not cut by the skew", Edit: mutants.Edit{"span := l.term - l.skew", "span := l.term"},
		Also: []mutants.Edit{{"viewEnd{wall: r.TermExpiry.Add(-l.skew), mono", "viewEnd{wall: r.TermExpiry, mono"}}},
	{Name: "a pushed record begins a leadership", Edit: mutants.Edit{"w.kind == OpAcquire && !w.done && proof && (", "w.kind == OpAcquire && !w.done && ("}},
	{Name: "released while work runs", Edit: mutants.Edit{"	case w.work:\n		return \"\"\n", "	case w.work && w.lead:\n		return \"\"\n"}},
	{Name: "the number is not raised", Edit: mutants.Edit{"r.ElectionNumber = l.highest + 1", "r.ElectionNumber = b.ElectionNumber"}},
	{Name: "the number comes from the record alone", Edit: mutants.Edit{"r.ElectionNumber = l.highest + 1", "r.ElectionNumber = b.ElectionNumber + 1"}},
	{Name: "no quiet", Edit: mutants.Edit{"k.quiet = max(k.quiet, from.mono+k.longest+drift(k.longest, k.skew))", "_ = from"}},
	{Name: "an acquisition over an older state begins no quiet", Edit: mutants.Edit{"w.kind != OpExtend && w.old {", "false {"}},
	{Name: "an emptied record is free", Edit: mutants.Edit{"if r.Emptied || lost || k", "if lost || k"}},
	{Name: "clones are told apart by the id alone", Edit: mutants.Edit{"r.Extension >= w.of.Extension && r.TermExpiry.Equal(w.of.TermExpiry)", "r.Extension >= w.of.Extension"}},
	{Name: "the wall clock does not end the view", Edit: mutants.Edit{"return mono > 0 && at.wall.Before(v.wall)", "return mono > 0"}},
	{Name: "one death is taken for that of all", Edit: mutants.Edit{"case !r.Vacant() && k.dead[r.Incarnation] && hold == 0:", "case !r.Vacant() && len(k.dead) > 0 && hold == 0:"}},
	{Name: "nobody releases", Edit: mutants.Edit{"return OpRelease", "return \"\""}},
	{Name: "who learns of another's record leads on", Edit: mutants.Edit{"case news, r.ElectionNumber == d.number", "case r.ElectionNumber == d.number"}},
	{Name: "what was taken too early begins a view", Edit: mutants.Edit{"if l.checked && w != nil && l.observe(", "if l.checked && w != nil && !w.robs() && l.observe("}},
})

func explored(all []mutants.Mutant) []mutants.Mutant {
	for i := range all {
		all[i].CaughtBy, all[i].Slow = "TestExplore$", true
	}
	return all
}

// Mutants of each kind are made, and each is another text that parses.
func TestMutantsAreMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	src := "package a\n\nfunc f(a, b int, c bool) bool {\n\tif !c && a < b {\n\t\ta = max(a, 7)\n\t}\n\tprintln(a)\n\treturn true\n}\n"
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := mutantsOf(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"(true || !c && a < b)", "(false && (!c && a < b))", "!c || a < b", "a <= b", "a > b", "if c &&", "min(a, 7)", "7+1", "7-1", "_ = 0\n\t}", "\t_ = 0\n\treturn", "return false"} {
		n := 0
		for _, m := range all {
			if strings.Contains(m.text, want) {
				n++
			}
		}
		if n == 0 {
			t.Errorf("no mutant has %q", want)
		}
	}
	if len(all) != 12 {
		t.Errorf("%d mutants", len(all))
	}
}
