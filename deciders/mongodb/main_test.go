package mongodb_test

import (
	"context"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(mongodb.Open)
	goleak.VerifyTestMain(m)
}

// mongod is the URI of a real replica set to run the tests on as well, if one is to
// be had.
var mongod = os.Getenv("LEADERELECTION_TEST_MONGODB_URI")

const (
	database   = "leaderelection_test"
	collection = "elections"
)

// client returns a client of its own, as the package comment advises, disconnected at the
// end of the test.
func client(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(options.Client().SetMinPoolSize(2).ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Disconnect(context.Background()) })
	return c
}

// elections returns what makes an election after the other, each handle with a client
// of its own.
func elections(uri string, opts *mongodb.Options) feedtest.NewElection {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider {
			return mongodb.NewDecider(client(t, uri), database, collection, name, opts)
		}
	}
}

// polled hides the feed, of a server that has none.
type polled struct{ leaderelection.RaceDecider }

func withoutFeed(newElection feedtest.NewElection) feedtest.NewElection {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		handle := newElection(t)
		return func() leaderelection.RaceDecider { return polled{handle()} }
	}
}

func open(ctx context.Context, address string) (*mongodb.Decider, error) {
	return feedtest.Open(ctx, mongodb.Open, address)
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *mongodb.Decider {
	t.Helper()
	return feedtest.Opened(t, mongodb.Open, address)
}
