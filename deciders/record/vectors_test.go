package record_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks/fakeclock"
	"github.com/c8e606e4/leaderelection/deciders/record"
	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// vectors are what docs/record.md gives to those who read records by other means. They are a
// promise: this test must not be changed along with the code.
type vectors struct {
	Read    []vector
	Refused []vector
	Judged  []vector
}

type vector struct {
	Name, Record, Base64 string
	Entry                *decoded // of what is read
	Written              string   // how it is written; empty: as it was read
	Why                  string   // of what is refused: part of the error
	Now, Skew, Unchanged nanos    // of what is judged
	State                string
	Until                nanos
}

// data are the bytes of the record.
func (v vector) data(t *testing.T) []byte {
	t.Helper()
	if v.Base64 == "" {
		return []byte(v.Record)
	}
	data, err := base64.StdEncoding.DecodeString(v.Base64)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// nanos are whole nanoseconds, as text.
type nanos string

func (n nanos) duration(t *testing.T) time.Duration {
	t.Helper()
	ns, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}

func since1970(at time.Time) nanos {
	ns := new(big.Int).Mul(big.NewInt(at.Unix()), big.NewInt(int64(time.Second)))
	return nanos(ns.Add(ns, big.NewInt(int64(at.Nanosecond()))).String())
}

// decoded is a record as every language can compare it.
type decoded struct {
	LeaderID         string            `json:"leader_id"`
	HostPort         []string          `json:"host_port"`
	ConnectionParams []byte            `json:"connection_params"`
	TermExpiry       nanos             `json:"term_expiry"`
	TermLength       nanos             `json:"term_length"`
	ElectionNumber   string            `json:"election_number"`
	Extension        string            `json:"extension"`
	Incarnation      string            `json:"incarnation"`
	WriteID          string            `json:"write_id"`
	Successor        string            `json:"successor"`
	Unsynchronized   bool              `json:"unsynchronized"`
	Hold             nanos             `json:"hold"`
	Priority         int               `json:"priority"`
	Extra            map[string]string `json:"extra"`
}

func decode(e *leaderelection.RaceEntry) decoded {
	d := decoded{
		e.LeaderID, slices.Clone(e.HostPort), e.ConnectionParams, since1970(e.TermExpiry), nanos(strconv.FormatInt(int64(e.TermLength), 10)),
		strconv.FormatUint(uint64(e.ElectionNumber), 10), strconv.FormatUint(e.Extension, 10), e.Incarnation, e.WriteID, e.Successor, e.Unsynchronized,
		nanos(strconv.FormatInt(int64(e.Hold), 10)), e.Priority, maps.Clone(e.Extra),
	}
	if d.HostPort == nil {
		d.HostPort = []string{}
	}
	if d.ConnectionParams == nil {
		d.ConnectionParams = []byte{}
	}
	if d.Extra == nil {
		d.Extra = map[string]string{}
	}
	return d
}

var recordDocs = filepath.Join("..", "..", "docs", "record")

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recordDocs, "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Read) < 30 || len(v.Refused) < 60 || len(v.Judged) < 15 {
		t.Fatalf("%d records are read, %d refused, %d judged: are they still found?", len(v.Read), len(v.Refused), len(v.Judged))
	}
	return v
}

// A record reads as the vectors say, and is written as they say.
func TestVectorsRead(t *testing.T) {
	for _, v := range readVectors(t).Read {
		t.Run(v.Name, func(t *testing.T) {
			want := cmp.Or(v.Written, v.Record)
			e, err := record.Unmarshal("here", v.data(t))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := json.Marshal(decode(e))
			if want, _ := json.Marshal(v.Entry); string(got) != string(want) {
				t.Errorf("it is read as\n%s, want\n%s", got, want)
			}
			if written, err := record.Marshal(e); err != nil || string(written) != want {
				t.Errorf("it is written as\n%s, %v, want\n%s", written, err, want)
			}
		})
	}
}

// The codec refuses what the vectors say is refused, and for the reason that they give.
func TestVectorsRefused(t *testing.T) {
	for _, v := range readVectors(t).Refused {
		t.Run(v.Name, func(t *testing.T) { refuses(t, v.data(t), v.Why) })
	}
}

// Routers go by what the vectors say of a term.
func TestVectorsJudged(t *testing.T) {
	for _, v := range readVectors(t).Judged {
		t.Run(v.Name, func(t *testing.T) {
			e, err := record.Unmarshal("here", v.data(t))
			if err != nil {
				t.Fatal(err)
			}
			now := time.Unix(0, int64(v.Now.duration(t)))
			clock := fakeclock.New(now.Add(-v.Unchanged.duration(t)))
			skew, policy := v.Skew.duration(t), leaderelection.Synchronized
			if skew == 0 {
				policy = leaderelection.SharedClock
			}
			table := route.NewTable(clock, skew, policy)
			table.News(*e)
			clock.Advance(v.Unchanged.duration(t))
			s := table.Load()
			state := "vacant"
			switch {
			case !s.Known():
				state = "none"
			case s.Led() && e.Unsynchronized:
				state = "unknown"
			case s.Led():
				state = "led"
			case !e.Vacant():
				state = "lapsed"
			}
			if state != v.State {
				t.Errorf("it is %s, want %s", state, v.State)
			}
			if gone := s.Gone(); v.Until != "" && since1970(gone) != v.Until {
				t.Errorf("the term is over at %v, want %v", gone, v.Until)
			}
		})
	}
}

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
