package mongodb_test

import (
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
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

// store is the imitation, for the tests that all stores have. The driver must not look for the other
// members through a relay.
var store = storetest.Store[*mongodb.Decider]{
	Open: mongodb.Open,
	Start: func(t testing.TB) (string, storetest.Server) {
		s := imitate(t)
		return s.Addr, s
	},
	Address: "mongodb://$addr/" + database + "/" + collection + "/$election?directConnection=true",
}

// ferret is FerretDB, which has no feed.
func ferret() storetest.Store[*mongodb.Decider] {
	f := store
	f.Start = func(t testing.TB) (string, storetest.Server) {
		s := stores.FerretDB(t)
		return strings.Trim(strings.TrimPrefix(s.URI, "mongodb:"), "/"), s
	}
	return f
}

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

// decider is an election by a client of its own, and web the one that most tests hold.
func decider(t testing.TB, uri, election string, opts *mongodb.Options) *mongodb.Decider {
	t.Helper()
	return mongodb.NewDecider(client(t, uri), database, collection, election, opts)
}

func web(t testing.TB, uri string) *mongodb.Decider {
	t.Helper()
	return decider(t, uri, "web", nil)
}

// elections returns what makes an election after the other, each handle with a client
// of its own.
func elections(uri string) feedtest.NewElection {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider { return decider(t, uri, name, nil) }
	}
}

func TestOutage(t *testing.T) { ferret().Outage(t) }
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	ferret().Processes(t)
}

// everyServer runs f on the imitation, and on a real one if there is one.
func everyServer(t *testing.T, f func(t *testing.T, uri string)) {
	t.Run("imitation", func(t *testing.T) { f(t, imitate(t).uri()) })
	if mongod != "" {
		t.Run("mongod", func(t *testing.T) { f(t, mongod) })
	}
}

func TestConformance(t *testing.T) {
	t.Run("FerretDB", func(t *testing.T) {
		handle := elections(stores.FerretDB(t).URI)
		decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
			polled := handle(t)
			return func() leaderelection.RaceDecider { return struct{ leaderelection.RaceDecider }{polled()} } // it has no feed
		}, nil)
	})
	everyServer(t, func(t *testing.T, uri string) { decidertest.Run(t, elections(uri), nil) })
}

func TestHandover(t *testing.T) {
	everyServer(t, func(t *testing.T, uri string) { feedtest.Handover(t, elections(uri)) })
}

func TestIdle(t *testing.T) {
	s := imitate(t)
	feedtest.Idle(t, elections(s.uri()), func() int { return s.count("find", "insert", "findAndModify", "aggregate") })
}

func TestNews(t *testing.T)                { store.News(t, nil) }
func TestAbandonedConnection(t *testing.T) { store.Abandons(t, "&minPoolSize=4") }

// A stream that breaks is taken up where it was: no event is missed, none comes twice.
func TestStreamIsResumed(t *testing.T) {
	s, d := imitated(t)
	writer := web(t, s.uri())
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	var token leaderelection.LeaderToken
	for n := range uint64(10) {
		token = feedtest.Write(t, writer, n+1, token)
		feedtest.Number(t, feed, n+1)
		s.with(func() {
			clear(s.cursors) // the next getMore finds none
			s.wake()
		})
	}
}

// What others do to the document by hand is told, too.
func TestChangesByHand(t *testing.T) {
	s, d := imitated(t)
	feed := feedtest.Follow(t, d)
	first := feedtest.Number(t, feed, 0)
	token := feedtest.Write(t, d, 1, first.Token)
	feedtest.Number(t, feed, 1)

	s.touch("web", "note", "ours") // read again
	if e := feedtest.Number(t, feed, 1); e.Token != feedtest.Read(t, d).Token {
		t.Errorf("the token is %v", e.Token)
	}
	replaced := fields(s.docs[collection]["web"])
	replaced["_id"], replaced["version"] = "web", bson.NewObjectID()
	s.set(replaced)
	if e := feedtest.Number(t, feed, 1); e.Token == token {
		t.Errorf("the token is the old one")
	} else {
		feedtest.Write(t, d, 2, e.Token)
		feedtest.Number(t, feed, 2)
	}
	s.set(nil) // deleted
	empty := feedtest.Number(t, feed, 0)
	if !empty.Vacant() {
		t.Errorf("deleted: %+v", empty)
	}
	feedtest.Write(t, d, 1, empty.Token)
	feedtest.Number(t, feed, 1)
	s.set(bson.M{"_id": "other"}) // somebody else's
	s.set(bson.M{"_id": "web", "holder": "x"})
	if n := feedtest.Next(t, feed); n.RaceEntry != nil || !errors.Is(n.Err, leaderelection.ErrPermanent) {
		t.Errorf("the feed yields %+v", n)
	}
}

// A collection that is dropped ends the stream, with an error.
func TestInvalidatedStream(t *testing.T) {
	s, d := imitated(t)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	s.invalidate()
	feedtest.Passing(t, feedtest.Next(t, feed).Err, "dropped")
}

// A server without change streams is asked once, and says so once. FerretDB and a
// standalone mongod say it in different words.
func TestNoChangeStreams(t *testing.T) {
	standalone, sessionless := alone(t), alone(t)
	sessionless.sessionless = true
	for name, uri := range map[string]string{"FerretDB": stores.FerretDB(t).URI, "standalone": standalone.uri(), "no sessions": sessionless.uri()} {
		t.Run(name, func(t *testing.T) {
			d := decider(t, uri, feedtest.Unique(), nil)
			feedtest.Passing(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, "no change streams")
			for range 2 {
				ctx := storetest.Within(t, 300*time.Millisecond)
				for e, err := range d.Changes(ctx) {
					t.Errorf("the feed yields %+v, %v", e, err)
				}
				if ctx.Err() == nil {
					t.Error("the feed has ended before its ctx")
				}
			}
		})
	}
	if n := standalone.count("aggregate"); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

// With announcements: a new leadership and a release are told of at once, extensions are not
// worth it, and a lost announcement is made good within half a term.
func TestAnnouncements(t *testing.T) {
	s := alone(t)
	at := func(election string) *mongodb.Decider {
		return store.Opened(t, store.At(s.Addr, election)+"&announcements=news")
	}
	d, other := at("web"), at("other")
	if err := d.CreateAnnouncements(t.Context()); err != nil {
		t.Errorf("made again: %v", err)
	}
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)

	begin := time.Now()
	token := feedtest.Write(t, d, 1, nil)
	feedtest.Number(t, feed, 1)
	feedtest.Write(t, other, 1, nil)
	release := feedtest.State(1, token)
	release.LeaderID, release.Extension, release.TermLength = "", 1, time.Second
	token, err := d.WriteEntry(t.Context(), release)
	if err != nil {
		t.Fatal(err)
	}
	if e := feedtest.Number(t, feed, 1); !e.Vacant() {
		t.Errorf("the feed yields %+v", e)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("that took %v", took)
	}

	// Whoever wrote it had no announcements: another version, or a lost one.
	silent := web(t, s.uri())
	begin = time.Now()
	feedtest.Write(t, silent, 2, token)
	feedtest.Number(t, feed, 2)
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("a lost announcement was made good after %v, want half of 1 s", took)
	}
	inserts := s.count("insert")
	extension := feedtest.State(2, feedtest.Read(t, d).Token)
	extension.Extension = 1
	if _, err := d.WriteEntry(t.Context(), extension); err != nil {
		t.Fatal(err)
	}
	if more := s.count("insert") - inserts; more != 0 {
		t.Errorf("an extension was announced")
	}
}

// Announcements that nobody has made room for. FerretDB closes a tailable cursor at its end, if there is room:
// the feed says so, and all poll.
func TestAnnouncementsMissing(t *testing.T) {
	for name, uri := range map[string]string{"imitation": imitate(t).uri(), "FerretDB": stores.FerretDB(t).URI} {
		t.Run(name, func(t *testing.T) {
			d := decider(t, uri, "web", &mongodb.Options{Announcements: "news"})
			if name == "FerretDB" {
				if err := d.CreateAnnouncements(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			feed := feedtest.Follow(t, d)
			feedtest.Number(t, feed, 0)
			feedtest.Passing(t, feedtest.Next(t, feed).Err, "news", "CreateAnnouncements")
			if err := web(t, uri).CreateAnnouncements(t.Context()); err == nil {
				t.Error("CreateAnnouncements without a name works")
			}
		})
	}
}

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://db-0,db-1,db-2/?replicaSet=rs0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Disconnect(ctx)
	config := leaderelection.Config{Decider: mongodb.NewDecider(client, "ops", "elections", "web", nil), LeaderID: "web-1"}
	log.Print(config.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
