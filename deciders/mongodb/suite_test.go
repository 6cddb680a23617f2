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
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
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

// web is the election that most tests hold, by a client of its own.
func web(t testing.TB, uri string) *mongodb.Decider {
	t.Helper()
	return mongodb.NewDecider(client(t, uri), database, collection, "web", nil)
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

// The server is killed, and started again with what it had on disk.
func TestOutage(t *testing.T) {
	stores.Nightly(t, "it breaks the store and waits")
	server := stores.FerretDB(t)
	feedtest.Outage(t, elections(server.URI, nil), feedtest.Trouble{Break: server.Stop, Heal: func() { server.Start(t) }})
}

// Three candidates in processes of their own: one is killed, one stopped past its term,
// one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	host := strings.Trim(strings.TrimPrefix(stores.FerretDB(t).URI, "mongodb:"), "/")
	proctest.Run(t, proctest.Options{Address: "mongodb://" + host + "/leaderelection_test/elections/processes", Upstream: host})
}

// The client that Open makes leaves all connections of its pool that have died without a word, and
// not only that of the call.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, imitate(t).addr)
	d := opened(t, "mongodb://"+relay.Addr+"/"+database+"/"+collection+"/web?directConnection=true&minPoolSize=4")
	feedtest.Fill(t, d)
	feedtest.Abandons(t, d, relay.Swallow)
}

// everyServer runs f on the imitation, and on a real one if there is one.
func everyServer(t *testing.T, f func(t *testing.T, uri string)) {
	t.Run("imitation", func(t *testing.T) { f(t, imitate(t).uri()) })
	if mongod != "" {
		t.Run("mongod", func(t *testing.T) { f(t, mongod) })
	}
}

func TestHandover(t *testing.T) {
	everyServer(t, func(t *testing.T, uri string) { feedtest.Handover(t, elections(uri, nil)) })
}

func TestIdle(t *testing.T) {
	s := imitate(t)
	feedtest.Idle(t, elections(s.uri(), nil), func() int {
		return s.count("find", "insert", "findAndModify", "aggregate", "getMore") - s.count("getMore")
	})
}

func TestNewsAfterCutConnection(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	s := imitate(t)
	proxy := stores.NewRelay(t, s.addr)
	// Through the proxy the driver must not look for the other members.
	victim := web(t, "mongodb://"+proxy.Addr+"/?directConnection=true")
	writer := web(t, s.uri())
	feedtest.News(t, writer, victim, feedtest.Trouble{Break: proxy.Refuse, Heal: proxy.Heal})
}

func TestNewsAfterRestart(t *testing.T) {
	s := imitate(t)
	handle := elections(s.uri(), nil)(t)
	feedtest.News(t, handle(), handle(), feedtest.Trouble{Break: s.stop, Heal: func() { s.start(s.addr) }})
}

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
		s.mu.Lock()
		clear(s.cursors) // the next getMore finds none
		s.wake()
		s.mu.Unlock()
	}
}

// What others do to the document by hand is told, too.
func TestChangesByHand(t *testing.T) {
	s, d := imitated(t)
	feed := feedtest.Follow(t, d)
	first := feedtest.Number(t, feed, 0)
	token := feedtest.Write(t, d, 1, first.Token)
	feedtest.Number(t, feed, 1)

	s.touch(collection, "web", "note", "ours") // read again
	if e := feedtest.Number(t, feed, 1); e.Token != feedtest.Read(t, d).Token {
		t.Errorf("the token is %v", e.Token)
	}
	s.mu.Lock()
	doc := fields(s.docs[collection]["web"])
	s.mu.Unlock()
	doc["version"] = bson.NewObjectID()
	s.set(collection, "web", doc) // replaced
	if e := feedtest.Number(t, feed, 1); e.Token == token {
		t.Errorf("the token is the old one")
	} else {
		feedtest.Write(t, d, 2, e.Token)
		feedtest.Number(t, feed, 2)
	}
	s.set(collection, "web", nil) // deleted
	empty := feedtest.Number(t, feed, 0)
	if !empty.Vacant() {
		t.Errorf("deleted: %+v", empty)
	}
	feedtest.Write(t, d, 1, empty.Token)
	feedtest.Number(t, feed, 1)
	s.set(collection, "other", bson.M{"_id": "other"}) // somebody else's
	s.set(collection, "web", bson.M{"_id": "web", "holder": "x"})
	if n := feedtest.Next(t, feed); n.RaceEntry != nil || !errors.Is(n.Err, leaderelection.ErrPermanent) {
		t.Errorf("the feed yields %+v", n)
	}
}

// A collection that is dropped ends the stream, with an error.
func TestInvalidatedStream(t *testing.T) {
	s := imitate(t)
	feed := feedtest.Follow(t, web(t, s.uri()))
	feedtest.Number(t, feed, 0)
	s.invalidate()
	feedtest.Passing(t, feedtest.Next(t, feed).Err, "dropped")
}

// A server without change streams is asked once, and says so once. FerretDB and a
// standalone mongod say it in different words.
func TestNoChangeStreams(t *testing.T) {
	standalone, sessionless := imitate(t), imitate(t)
	standalone.standalone = true
	sessionless.standalone, sessionless.sessionless = true, true
	for name, uri := range map[string]string{"FerretDB": stores.FerretDB(t).URI, "standalone": "mongodb://" + standalone.addr, "no sessions": "mongodb://" + sessionless.addr} {
		t.Run(name, func(t *testing.T) {
			d := mongodb.NewDecider(client(t, uri), database, collection, feedtest.Unique(), nil)
			feedtest.Passing(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, "no change streams")
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				for e, err := range d.Changes(ctx) {
					t.Errorf("the feed yields %+v, %v", e, err)
				}
				if ctx.Err() == nil {
					t.Error("the feed has ended before its ctx")
				}
				cancel()
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
	s := imitate(t)
	s.standalone = true
	uri := "mongodb://" + s.addr
	d := opened(t, uri+"/leaderelection_test/elections/web?announcements=news")
	if again := opened(t, uri+"/leaderelection_test/elections/web?announcements=news"); again.CreateAnnouncements(t.Context()) != nil {
		t.Error("it may be made again")
	}
	other := opened(t, uri+"/leaderelection_test/elections/other?announcements=news")
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
	silent := web(t, uri)
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

// Announcements that nobody has made room for.
func TestAnnouncementsMissing(t *testing.T) {
	s := imitate(t)
	d := mongodb.NewDecider(client(t, s.uri()), database, collection, "web", &mongodb.Options{Announcements: "news"})
	s.inject(func(c string) *fault { return nil })
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	if n := feedtest.Next(t, feed); n.Err == nil || !strings.Contains(n.Err.Error(), "CreateAnnouncements") || !strings.Contains(n.Err.Error(), "news") {
		t.Errorf("the feed yields %+v", n)
	}
	if err := web(t, s.uri()).CreateAnnouncements(t.Context()); err == nil {
		t.Error("CreateAnnouncements without a name works")
	}
}

// FerretDB closes a tailable cursor at its end: the feed says so, and all poll.
func TestAnnouncementsOnFerretDB(t *testing.T) {
	d := mongodb.NewDecider(client(t, stores.FerretDB(t).URI), database, collection, "web", &mongodb.Options{Announcements: "news"})
	if err := d.CreateAnnouncements(t.Context()); err != nil {
		t.Fatal(err)
	}
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	feedtest.Passing(t, feedtest.Next(t, feed).Err, "news")
	feedtest.Write(t, d, 1, nil)
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
