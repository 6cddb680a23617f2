package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// In virtual time, so that it takes none.
func TestNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		begin := time.Now()
		night(t.Context(), &out)
		var bills, returned []string
		for line := range strings.Lines(out.String()) {
			if _, result, ran := strings.Cut(line, ": Run returned "); ran {
				returned = append(returned, strings.TrimSpace(result))
			} else {
				bills = append(bills, strings.TrimSpace(line))
			}
		}
		if want := []string{
			"bill for Abel   with fencing token 1",
			"bill for Baker  with fencing token 1",
			"bill for Chan   with fencing token 2",
			"bill for Diaz   with fencing token 2",
			"bill for Eze    with fencing token 2",
			"bill for Fox    with fencing token 2",
		}; !slices.Equal(bills, want) {
			t.Errorf("bills: %q\nwant %q", bills, want)
		}
		if slices.Sort(returned); !slices.Equal(returned, []string{"<nil>", "<nil>", "paper jam"}) {
			t.Errorf("Run returned %q", returned)
		}
		// Each releases when its job is done, so nobody waits for a term to end.
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A machine that comes late is refused by the table, whatever it believes.
func TestTableRefusesALowerToken(t *testing.T) {
	var out bytes.Buffer
	bills := &table{out: &out, due: []string{"Abel", "Baker"}, jam: 100}
	if more, err := bills.sendNext(2); !more || err != nil {
		t.Fatal(more, err)
	}
	if more, err := bills.sendNext(1); more || err == nil {
		t.Errorf("sendNext(1) after sendNext(2) = %v, %v", more, err)
	}
	if len(bills.due) != 1 {
		t.Errorf("due: %q", bills.due)
	}
}
