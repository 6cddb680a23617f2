package mongodb_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// client returns a client of its own, disconnected at the end of the test.
func client(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
	return c
}

var names atomic.Uint64

func uniqueName() string { return fmt.Sprintf("election-%d-%d", os.Getpid(), names.Add(1)) }

// elections returns what makes an election after the other, each handle with a
// client of its own.
func elections(uri string) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := uniqueName()
		return func() leaderelection.RaceDecider {
			return mongodb.NewDecider(client(t, uri), "leaderelection_test", "elections", name, nil)
		}
	}
}

// polled hides the feed, of a server that has none.
type polled struct{ leaderelection.RaceDecider }

func TestConformanceFerretDB(t *testing.T) {
	newElection := elections(stores.FerretDB(t).URI)
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		handle := newElection(t)
		return func() leaderelection.RaceDecider { return polled{handle()} }
	})
}
