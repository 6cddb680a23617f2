//go:build go1.25

package dynamo_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
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
		var mu sync.Mutex
		var elected []time.Duration
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, id := range []string{"a", "b"} {
			c := leaderelection.Config{
				Decider:  dynamo.NewDecider(reach(t, server), "new-elections", "one", &dynamo.Options{SortKey: "sort", CreateTable: true}),
				LeaderID: id, MaxClockSkew: time.Second,
				OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
					mu.Lock()
					elected = append(elected, time.Since(began))
					mu.Unlock()
					<-ctx.Done()
				},
			}
			wg.Go(func() {
				if err := c.Acquire(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
		time.Sleep(time.Minute)
		mu.Lock()
		if len(elected) != 1 || elected[0] < server.making || elected[0] > server.making+10*time.Second {
			t.Errorf("elected after %v, the table was there after %v", elected, server.making)
		}
		mu.Unlock()
		cancel()
		wg.Wait()
		if keys := server.tables["new-elections"].keys; strings.Join(keys, " ") != "key sort" {
			t.Errorf("keys %v", keys)
		}
	})
}

// Without the permission to create tables, that is what is said.
func TestTableCannotBeCreated(t *testing.T) {
	server := newFake("key")
	tr := &httpfault.Transport{Handler: server, Fault: func(r *http.Request) httpfault.Fault {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".CreateTable") {
			return refusal(http.StatusBadRequest, "AccessDeniedException")
		}
		return httpfault.Fault{}
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
