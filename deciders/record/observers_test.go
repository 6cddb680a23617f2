package record_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// observers are the programs of docs/record that follow an election, as a command runs them.
var observers = map[string]struct {
	program, driver string
	command         []string
}{
	"Python":     {"observe.py", "vectors.py", []string{"python3", "-B"}},
	"JavaScript": {"observe.js", "vectors.js", []string{"node"}},
}

// The observers of other languages in docs/record go by the vectors as the codec does, and are short.
func TestObserversGoByTheVectors(t *testing.T) {
	all := readVectors(t)
	for language, o := range observers {
		t.Run(language, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(recordDocs, o.program))
			if lines := bytes.Count(text, []byte("\n")); err != nil || lines < 30 || lines > 60 {
				t.Errorf("%s has %d lines, %v: 60 are enough", o.program, lines, err)
			}
			var in bytes.Buffer
			send := json.NewEncoder(&in)
			ask := func(vs []vector) {
				for _, v := range vs {
					q := map[string]any{"data": v.data(t), "now": nanos("0"), "skew": nanos("0"), "unchanged": nanos("0")}
					if v.Now != "" {
						q["now"], q["skew"], q["unchanged"] = v.Now, v.Skew, v.Unchanged
					}
					if err := send.Encode(q); err != nil {
						t.Fatal(err)
					}
				}
			}
			ask(all.Read)
			ask(all.Refused)
			ask(all.Judged)
			stores.Need(t, o.command[0])
			cmd := exec.CommandContext(t.Context(), o.command[0], append(o.command[1:], filepath.Join("testdata", o.driver), recordDocs)...)
			cmd.Stdin, cmd.Stderr = &in, new(bytes.Buffer)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, cmd.Stderr)
			}
			answers := json.NewDecoder(bytes.NewReader(out))
			next := func() (a observed) {
				t.Helper()
				if err := answers.Decode(&a); err != nil {
					t.Fatalf("%v\n%s", err, cmd.Stderr)
				}
				return a
			}
			for _, v := range all.Read {
				if a := next(); a.Error != "" || a.Entry == nil || !a.Entry.is(v.Entry) {
					t.Errorf("%s: it is read as %+v, %s", v.Name, a.Entry, a.Error)
				}
			}
			for _, v := range all.Refused {
				if a := next(); a.Error == "" {
					t.Errorf("%s: it is read as %+v", v.Name, a.Entry)
				}
			}
			for _, v := range all.Judged {
				if a := next(); a.Error != "" || a.State != v.State || a.Until != v.Until {
					t.Errorf("%s: it is %q until %q, want %q until %q; %s", v.Name, a.State, a.Until, v.State, v.Until, a.Error)
				}
			}
			if answers.More() || strings.TrimSpace(string(out)) == "" {
				t.Error("there are more answers than questions, or none")
			}
		})
	}
}

// observed is what an observer makes of a vector.
type observed struct {
	Error string
	Entry *decoded // as much of it as an observer needs
	State string
	Until nanos
}

// is reports whether an observer has read the record as it is.
func (d *decoded) is(want *decoded) bool {
	return d.LeaderID == want.LeaderID && d.Incarnation == want.Incarnation && d.Successor == want.Successor && d.Priority == want.Priority &&
		d.TermExpiry == want.TermExpiry && d.TermLength == want.TermLength && d.ElectionNumber == want.ElectionNumber &&
		d.Extension == want.Extension && d.Unsynchronized == want.Unsynchronized
}
