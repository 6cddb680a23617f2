package rethinkdb_test

import (
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
	"go.uber.org/goleak"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"
)

func TestMain(m *testing.M) {
	proctest.Main(rethinkdb.Open)
	// The driver leaves this behind by itself if it cannot connect.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hailocab/go-hostpool.(*epsilonGreedyHostPool).epsilonGreedyDecay"))
}

const (
	database = "leaderelection_test"
	table    = "elections"
)

// store is the imitation, for the tests that all stores have.
var store = storetest.Store[*rethinkdb.Decider]{
	Open: rethinkdb.Open,
	Start: func(t testing.TB) (string, storetest.Server) {
		s := imitate(t)
		return s.Addr, s
	},
	Address: "rethinkdb://$addr/leaderelection_test/elections/$election",
}

// server is host:port of a real RethinkDB to run the tests on as well, if one is to
// be had. They use the database leaderelection_test.
var server = os.Getenv("LEADERELECTION_TEST_RETHINKDB")

// everyServer runs f with the address of the imitation, and of a real server if there
// is one.
func everyServer(t *testing.T, f func(t *testing.T, addr string)) {
	t.Run("imitation", func(t *testing.T) { f(t, imitate(t).Addr) })
	if server != "" {
		made := connect(t, server)
		_, _ = r.DBCreate(database).RunWrite(made) // they may be there
		_, _ = r.DB(database).TableCreate(table, r.TableCreateOpts{Durability: "hard"}).RunWrite(made)
		if _, err := r.DB(database).Table(table).Wait().Run(made); err != nil {
			t.Fatal(err)
		}
		t.Run("server", func(t *testing.T) { f(t, server) })
	}
}

// connect returns a session of its own, closed at the end of the test.
func connect(t testing.TB, addr string) *r.Session {
	t.Helper()
	s, err := r.Connect(r.ConnectOpts{Address: addr, Timeout: 5 * time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// web is the election that most tests hold, by a session of its own.
func web(t testing.TB, addr string) *rethinkdb.Decider {
	t.Helper()
	return rethinkdb.NewDecider(connect(t, addr), database, table, "web", nil)
}

func TestConformance(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) { decidertest.Run(t, store.Elections(addr), nil) })
}

func TestHandover(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) { feedtest.Handover(t, store.Elections(addr)) })
}

func TestIdle(t *testing.T) {
	s := imitate(t)
	// Each replace is read back, which is a get.
	feedtest.Idle(t, store.Elections(s.Addr), func() int { return s.count("get") + s.count("changes") })
}

func TestNews(t *testing.T)                { store.News(t, nil) }
func TestOutage(t *testing.T)              { store.Outage(t) }
func TestAbandonedConnection(t *testing.T) { store.Abandons(t, "") }

// Three candidates in processes of their own, on the imitation in this one: one is killed,
// one stopped past its term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) {
		proctest.Run(t, proctest.Options{Address: store.At(addr, feedtest.Unique()) + "?timeout=1s", Upstream: addr})
	})
}

// What others do to the row by hand is told, too.
func TestChangesByHand(t *testing.T) {
	s, d := imitated(t)
	feed := feedtest.Follow(t, d)
	feedtest.Write(t, d, 1, feedtest.Number(t, feed, 0).Token)
	feedtest.Number(t, feed, 1)
	s.set("web", nil)
	empty := feedtest.Number(t, feed, 0)
	if !empty.Vacant() {
		t.Errorf("deleted: %+v", empty)
	}
	feedtest.Write(t, d, 1, empty.Token)
	feedtest.Number(t, feed, 1)
	s.set("other", map[string]any{"id": "other"}) // somebody else's
	s.set("web", map[string]any{"id": "web", "holder": "x"})
	if n := feedtest.Next(t, feed); n.RaceEntry != nil || !errors.Is(n.Err, leaderelection.ErrPermanent) {
		t.Errorf("the feed yields %+v", n)
	}
}

// A feed fails if the server ends it, as when a replica goes away, or says that it has left changes out.
func TestFeedEnds(t *testing.T) {
	for says, end := range map[string]func(s *imitation){
		"unavailable": func(s *imitation) {
			s.end(&refusal{p.Response_OP_FAILED, "Changefeed aborted (unavailable)."})
		},
		"ended": func(s *imitation) { s.end(nil) },
		"skipped 3": func(s *imitation) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.tell("web", map[string]any{"error": "Changefeed cache over array size limit, skipped 3 elements."})
		},
	} {
		t.Run(says, func(t *testing.T) {
			s, d := imitated(t)
			feed := feedtest.Follow(t, d)
			feedtest.Number(t, feed, 0)
			end(s)
			feedtest.Passing(t, feedtest.Next(t, feed).Err, says, `"web"`)
		})
	}
}

// A feed whose server has fallen silent ends with its ctx, for all that.
func TestFeedEndsThoughTheServerIsSilent(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	s, d := imitated(t)
	begin := time.Now()
	for range d.Changes(t.Context()) {
		s.Cut()
		break
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	s.Heal()
}

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	const limit = 5 * time.Second // so that a server that does not answer leaves nothing behind
	session, err := r.Connect(r.ConnectOpts{Addresses: []string{"db-0:28015", "db-1:28015"}, ReadTimeout: limit, WriteTimeout: limit})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	config := leaderelection.Config{Decider: rethinkdb.NewDecider(session, "ops", "elections", "web", nil), LeaderID: "web-1"}
	log.Print(config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}

func TestOpen(t *testing.T) {
	s := imitate(t)
	s.password = "s3/cret"
	at := "rethinkdb://admin:s3%2Fcret@" + s.Addr + "/ops/elections/a%20b/c"
	d := store.Opened(t, at+"?timeout=2s&discover=false")
	if want := `RethinkDB ops.elections id "a b/c" at ` + s.Addr; d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	if s.rows["a b/c"] == nil {
		t.Errorf("there are %v", s.rows)
	}
}

// TLS both ways, and a password: the server shows a certificate, and demands one.
func TestTLS(t *testing.T) {
	ca, other := feedtest.NewAuthority(t, "server", "client"), feedtest.NewAuthority(t, "client")
	s := imitateTLS(t, ca.ServerTLS("server"))
	s.password = "s3cret"
	at := "rethinkdb://admin:s3cret@" + s.Addr + "/ops/elections/web?"
	authority, own := "&tls_ca="+ca.Path("ca.pem"), "&tls_cert="+ca.Path("client.pem")+"&tls_key="+ca.Path("client.key")
	d := store.Opened(t, at+authority+own)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feedtest.Number(t, feed, 1)

	for what, c := range map[string]struct{ address, word string }{
		"an authority that the system does not know": {at + "tls=true" + own, "tls_ca"},
		"another's authority":                        {at + "tls_ca=" + other.Path("ca.pem") + own, "tls_ca"},
		"no certificate of one's own":                {at + authority, "certificate"},
		"another's certificate":                      {at + authority + "&tls_cert=" + other.Path("client.pem") + "&tls_key=" + other.Path("client.key"), "certificate"},
		"the key of another certificate":             {at + authority + "&tls_cert=" + ca.Path("client.pem") + "&tls_key=" + ca.Path("server.key"), "tls_key"},
		"a wrong password":                           {strings.Replace(at, "s3cret", "s3cret-not", 1) + authority + own, "password"},
		"another user":                               {strings.Replace(at, "admin", "somebody", 1) + authority + own, "user"},
	} {
		_, err := feedtest.Open(t.Context(), rethinkdb.Open, c.address)
		feedtest.Permanent(t, err, c.word)
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: a secret in the error: %v", what, err)
		}
	}
	_, err := feedtest.Open(t.Context(), rethinkdb.Open, "rethinkdb://"+imitate(t).Addr+"/ops/elections/web?tls=true")
	feedtest.Permanent(t, err, "does not speak TLS")
	// The other way round there is no telling what speaks there.
	if _, err := feedtest.Open(storetest.Within(t, time.Second), rethinkdb.Open, at); err == nil {
		t.Error("a server that speaks TLS understands a client that does not")
	}
}

func TestOpenWithoutServer(t *testing.T) {
	_, err := feedtest.Open(t.Context(), rethinkdb.Open, "rethinkdb://127.0.0.1:1/ops/elections/web")
	feedtest.Passing(t, err, "127.0.0.1:1")

	// One that accepts and says nothing.
	s := imitate(t)
	s.Cut()
	begin := time.Now()
	_, err = feedtest.Open(storetest.Within(t, 200*time.Millisecond), rethinkdb.Open, store.At(s.Addr, "web"))
	if feedtest.Passing(t, err); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open: %v", err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("Open took %v", took)
	}
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, rethinkdb.Open, map[string]string{
		"https://h/d/t/e":                                 "scheme",
		"rethinkdb:///d/t/e":                              "host",
		"rethinkdb://h//t/e":                              "table",
		"rethinkdb://h/d/t/e?frobnicate=1":                "frobnicate",
		"rethinkdb://h/d/t/e?tls=perhaps":                 "tls",
		"rethinkdb://h/d/t/e?discover=true":               "name each server",
		"rethinkdb://h/d/t/e?timeout=-1s":                 "timeout",
		"rethinkdb://h/d/t/e?create=true":                 "create",
		"rethinkdb://h/d/t/e?tls_ca=/dev/null":            "PEM",
		"rethinkdb://me:s3cret@h/d/t/e?frobnicate=s3cret": "xxxxx",
	})
}

// A server that was down when the decider was opened is used when it is back, and each
// takes over from the other.
func TestServersComeAndGo(t *testing.T) {
	first, second := imitate(t), imitate(t)
	first.Refuse()
	d := store.Opened(t, "rethinkdb://"+first.Addr+","+second.Addr+"/leaderelection_test/elections/web?timeout=1s")
	token := feedtest.Write(t, d, 1, nil)
	for range 2 {
		feed := feedtest.Follow(t, d)
		feedtest.Number(t, feed, 1)
		second.Refuse()
		if n := feedtest.Next(t, feed); n.Err == nil {
			t.Errorf("the feed of a server that is gone yields %+v", n)
		}
		first.Heal()
		eventually(t, d, 0) // there they have no replica of it
		feedtest.Number(t, feedtest.Follow(t, d), 0)
		first.Refuse()
		second.Heal()
		eventually(t, d, 1)
	}
	feedtest.Write(t, d, 2, token)

	second.Refuse()
	feedtest.Passing(t, feedtest.ReadError(t, d), `"web"`)
	feedtest.Passing(t, feedtest.ReadError(t, d), first.Addr, second.Addr, "refused", `"web"`)
}

// eventually reads until that works: at the third time at the latest, and later only on a machine that
// takes most of the ctx's time to compute a login.
func eventually(t *testing.T, d leaderelection.RaceDecider, number leaderelection.ElectionNumber) {
	t.Helper()
	var err error
	for range 20 {
		var e *leaderelection.RaceEntry
		if e, err = d.ReadCurrent(storetest.Within(t, 700*time.Millisecond)); err == nil {
			if e.ElectionNumber != number {
				t.Errorf("read %+v; want leadership %d", e, number)
			}
			return
		}
	}
	t.Errorf("nothing was read: %v", err)
}

// A server that does not answer, and one that cannot do anything without the others, are
// left for the next one.
func TestServersThatAreNoUse(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	first, second := imitate(t), imitate(t)
	d := store.Opened(t, "rethinkdb://"+first.Addr+","+second.Addr+"/leaderelection_test/elections/web?timeout=1s")
	feedtest.Write(t, d, 1, nil)
	first.Cut()
	eventually(t, d, 0)
	feedtest.Write(t, d, 2, nil)
	first.Heal()
	second.inject(func(string) *fault {
		return &fault{refuse: &refusal{p.Response_OP_FAILED, "Cannot perform read: The primary replica isn't connected to a quorum of replicas. The read was not performed."}}
	})
	eventually(t, d, 1)
}

// Authority, certificate and key are replaced, and with them the server's.
func TestRenewedCertificates(t *testing.T) {
	ca := feedtest.NewAuthority(t, "server", "client")
	s := imitateTLS(t, ca.ServerTLS("server"))
	d := store.Opened(t, store.At(s.Addr, "web")+"?"+storetest.TLS(ca, "client"))
	storetest.Renewed(t, d, ca, func() { s.Refuse(); s.Heal() })
}

// A decider that was closed says so.
func TestClosed(t *testing.T) {
	d := store.Opened(t, store.At(imitate(t).Addr, "web"))
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	feedtest.Permanent(t, feedtest.ReadError(t, d), "closed", `"web"`)
}
