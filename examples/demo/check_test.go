package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// good is a ledger as it should be: a leadership that ended with its view (its leader
// was killed), one that was given up early, and one that follows at once.
const good = `
2026-11-21T12:00:00.0Z ada 1 begin 0 2026-11-21T12:00:02.8Z
2026-11-21T12:00:00.2Z ada 1 act 1 2026-11-21T12:00:02.8Z
2026-11-21T12:00:01.6Z ada 1 act 2 2026-11-21T12:00:04.2Z
2026-11-21T12:00:04.6Z bob 2 begin 0 2026-11-21T12:00:07.4Z
2026-11-21T12:00:04.8Z bob 2 act 1 2026-11-21T12:00:07.4Z
2026-11-21T12:00:05.0Z bob 2 end 2 2026-11-21T12:00:07.4Z
2026-11-21T12:00:05.1Z cyd 3 begin 0 2026-11-21T12:00:07.9Z
2026-11-21T12:00:05.3Z cyd 3 act 1 2026-11-21T12:00:07.9Z
`

func lines(t *testing.T, text string) []entry {
	t.Helper()
	all, err := readLedger(strings.NewReader(strings.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCheckPassesWhatIsRight(t *testing.T) {
	leaderships, faults := check(lines(t, good))
	if len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
	if len(leaderships) != 3 || leaderships[0].acts != 2 || leaderships[1].id != "bob" || leaderships[2].token != 3 {
		t.Errorf("leaderships: %+v", leaderships)
	}
}

// Each forgery is found, and named.
func TestCheckFindsForgeries(t *testing.T) {
	for name, c := range map[string]struct{ old, forged, say string }{
		"overlap": {
			"04.6Z bob 2 begin 0", "04.1Z bob 2 begin 0",
			"leaderships overlap: bob began with token 2, 100ms before the view of ada with token 1 ended",
		},
		"an act after the next leader's first": {
			"2026-11-21T12:00:04.8Z bob 2 act 1 2026-11-21T12:00:07.4Z",
			"2026-11-21T12:00:04.8Z bob 2 act 1 2026-11-21T12:00:07.4Z\n2026-11-21T12:00:04.9Z ada 1 act 3 2026-11-21T12:00:05.9Z",
			"line 6: act of ada with token 1 after the first with token 2",
		},
		"an act after the view": {
			"01.6Z ada 1 act 2 2026-11-21T12:00:04.2Z", "04.3Z ada 1 act 2 2026-11-21T12:00:04.2Z",
			"line 3: act of ada with token 1, 100ms after the end of its view",
		},
		"a token of two":    {"05.1Z cyd 3", "05.1Z bob 3", "token 3 is used by bob and by cyd"},
		"no end":            {" end ", " act ", "leaderships overlap: cyd began with token 3, 2.3s before the view of bob with token 2 ended"},
		"a token goes back": {"05.3Z cyd 3", "05.3Z cyd 2", "line 8: act of cyd with token 2 after the first with token 3"},
	} {
		t.Run(name, func(t *testing.T) {
			forged := strings.Replace(good, c.old, c.forged, 1)
			if forged == good {
				t.Fatal("nothing was forged")
			}
			_, faults := check(lines(t, forged))
			if !strings.Contains(strings.Join(faults, "\n"), c.say) {
				t.Errorf("faults: %q\nwant %q", faults, c.say)
			}
		})
	}
}

// The demo itself fails on a forged ledger, and says so in its report.
func TestVerdictOnAForgedLedger(t *testing.T) {
	for _, c := range []struct {
		text string
		bad  bool
	}{{good, false}, {strings.Replace(good, "04.6Z bob", "04.1Z bob", 1), true}} {
		path := filepath.Join(t.TempDir(), ledger)
		if err := os.WriteFile(path, []byte(strings.TrimSpace(c.text)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &stage{ledger: path, events: make([]event, 3)}
		var out bytes.Buffer
		err := s.verdict(&out, time.Second)
		if (err != nil) != c.bad {
			t.Errorf("verdict = %v", err)
		}
		if fault, clean := strings.Contains(out.String(), "FAULT: leaderships overlap"), strings.Contains(out.String(), "0 overlapping leaderships"); fault != c.bad || clean == c.bad {
			t.Errorf("it prints\n%s", &out)
		}
	}
}

func TestEntryIsReadBack(t *testing.T) {
	e := entry{At: time.Now().UTC(), ID: "ada", Token: 7, Kind: "act", Beat: 3, Until: time.Now().Add(time.Second).UTC()}
	e.At, e.Until = e.At.Round(0), e.Until.Round(0)
	if got, err := parseEntry(e.String()); err != nil || got != e {
		t.Errorf("%v, %v; want %v", got, err, e)
	}
	for _, bad := range []string{"", "x", e.String() + " more", strings.Replace(e.String(), " act ", " sleep ", 1), strings.Replace(e.String(), " 7 ", " x ", 1)} {
		if got, err := parseEntry(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
