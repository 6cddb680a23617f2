//go:build go1.25

package dynamo_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

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
	mine, yours := first, first
	mine.LeaderID, mine.Incarnation = "a", "a"
	yours.LeaderID, yours.Incarnation = "b", "b"
	token, err := a.WriteEntry(t.Context(), &mine)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteEntry(t.Context(), &yours); err != nil {
		t.Fatal(err)
	}
	there.replicate(here) // the last writer wins
	mine.Token = token
	mine.Extension++
	_, err = a.WriteEntry(t.Context(), &mine)
	var lost *leaderelection.LostRaceError
	if !errors.As(err, &lost) || lost.Current == nil || lost.Current.LeaderID != "b" {
		t.Errorf("a's extension over b's record: %v", err)
	}
}

// dax is a client of a DAX cluster, as of a table: what is set for one request of DynamoDB's own
// client means nothing to it, and it answers reads from its cache unless they are strongly
// consistent.
type dax struct {
	*dynamodb.Client
	t testing.TB
}

func (d dax) Options() struct{} { return struct{}{} } // it has none of a *dynamodb.Client's

func (d dax) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if in.ConsistentRead == nil || !*in.ConsistentRead {
		d.t.Error("a read that the cache answers")
	}
	return d.Client.GetItem(ctx, in)
}

func (d dax) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnValuesOnConditionCheckFailure = "" // which not every version of its client knows
	return d.Client.UpdateItem(ctx, in)
}

// Through DAX an election is sound, since it passes on what is conditional or consistent: but
// nothing then proves that DynamoDB answered.
func TestThroughDAX(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		h := &http.Client{Transport: &httpfault.Transport{Handler: newFake("key")}}
		return func() leaderelection.RaceDecider {
			return dynamo.NewDecider(dax{inProcess(t, h), t}, "elections", "one", nil)
		}
	}, nil)
}
