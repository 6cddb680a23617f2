//go:build go1.25

package dynamo_test

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// A table takes longer to be created than one call may take: the calls meanwhile
// fail with errors that pass, and one table is created.
func TestTableIsCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake("key")
		server.making = 9 * time.Second
		campaign := func(id string) <-chan struct{} {
			o := &dynamo.Options{SortKey: "sort", CreateTable: true}
			_, elected := feedtest.Campaign(t, dynamo.NewDecider(reach(t, server), "new-elections", "one", o), id, 15*time.Second, time.Second)
			return elected
		}
		began := time.Now()
		a, b := campaign("a"), campaign("b")
		select {
		case <-a:
		case <-b:
		}
		if took := time.Since(began); took < server.making || took > server.making+10*time.Second {
			t.Errorf("elected after %v, the table was there after %v", took, server.making)
		}
		time.Sleep(time.Minute)
		if len(a)+len(b) > 0 {
			t.Error("the other was elected, too")
		}
		if keys := server.tables["new-elections"].keys; strings.Join(keys, " ") != "key sort" {
			t.Errorf("keys %v", keys)
		}
	})
}

// Without the permission to create tables, that is what is said.
func TestTableCannotBeCreated(t *testing.T) {
	server := newFake("key")
	tr := &httpfault.Transport{Handler: server, Fault: func(r *http.Request) (f httpfault.Fault) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".CreateTable") {
			f = refusal(http.StatusBadRequest, "AccessDeniedException")
		}
		return f
	}}
	feedtest.Refuses(t, dynamo.NewDecider(inProcess(t, &http.Client{Transport: tr}), "new-elections", "one", &dynamo.Options{CreateTable: true}), "creating the table", "permission")
}

// A global table is fit only if its regions are strongly consistent; doctor hears of it, too.
func TestGlobalTables(t *testing.T) {
	for more, fit := range map[string]bool{
		``: true,
		`,"Replicas":[{"RegionName":"eu-west-1"}],"GlobalTableVersion":"2019.11.21","MultiRegionConsistency":"STRONG"`:   true,
		`,"Replicas":[{"RegionName":"eu-west-1"}],"GlobalTableVersion":"2019.11.21","MultiRegionConsistency":"EVENTUAL"`: false,
		`,"Replicas":[{"RegionName":"eu-west-1"}]`: false,
		`,"GlobalTableVersion":"2017.11.29"`:       false, // whose DescribeTable lists no replicas
	} {
		body := `{"Table":{"TableName":"elections","TableStatus":"ACTIVE",
			"KeySchema":[{"AttributeName":"key","KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":"key","AttributeType":"S"}]` + more + `}}`
		d := answering(t, httpfault.Fault{Status: 200, Header: proof([]byte(body)), Body: body})
		err := d.VerifyTable(t.Context())
		if fit != (err == nil) || !fit && (!errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), "global table")) {
			t.Errorf("%q: VerifyTable = %v", more, err)
		}
		warnings, err := d.Durability(t.Context())
		if err != nil || fit != (len(warnings) == 0) || !fit && !strings.Contains(warnings[0].String(), "another region leads as well") {
			t.Errorf("%q: Durability = %v, %v", more, warnings, err)
		}
	}
	if _, err := answering(t, refusal(http.StatusBadRequest, "AccessDeniedException")).Durability(t.Context()); err == nil || !strings.Contains(err.Error(), "examining") {
		t.Errorf("Durability without the permission: %v", err)
	}
}

// replicate is what an eventually consistent global table does in time: it writes this region's
// items over the other region's, without a condition.
func (f *fake) replicate(to *fake) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	for name, table := range f.tables {
		maps.Copy(to.tables[name].items, table.items)
	}
}

// Two regions of such a table elect a leader each, and nothing in their answers shows it: that is
// what Durability is for. When a region's item has been replaced its leader has lost the race.
func TestRegionsElectALeaderEach(t *testing.T) {
	here, there := newFake("key"), newFake("key")
	a := dynamo.NewDecider(reach(t, here), "elections", "one", nil)
	b := dynamo.NewDecider(reach(t, there), "elections", "one", nil)
	token := feedtest.Write(t, a, 1, nil)
	yours := feedtest.State(1, nil)
	yours.LeaderID, yours.Incarnation = "b", "b"
	if _, err := b.WriteEntry(t.Context(), yours); err != nil {
		t.Fatal(err)
	}
	there.replicate(here) // the last writer wins
	var lost *leaderelection.LostRaceError
	if err := feedtest.WriteError(t, a, 2, token); !errors.As(err, &lost) || lost.Current == nil || lost.Current.LeaderID != "b" {
		t.Errorf("a's extension over b's record: %v", err)
	}
}
