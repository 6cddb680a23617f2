package rethinkdb_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		return open(ctx, address)
	})
	// The driver leaves this behind by itself where it cannot connect.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hailocab/go-hostpool.(*epsilonGreedyHostPool).epsilonGreedyDecay"))
}

// server is host:port of a real RethinkDB to run the tests on as well, where one is to
// be had. They use the database leaderelection_test.
var server = os.Getenv("LEADERELECTION_TEST_RETHINKDB")

// everyServer runs f with the address of the imitation, and of a real server where there
// is one.
func everyServer(t *testing.T, f func(t *testing.T, addr string)) {
	t.Run("imitation", func(t *testing.T) { f(t, imitate(t).addr) })
	if server != "" {
		opened(t, "rethinkdb://"+server+"/leaderelection_test/elections/x?create=true")
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

var names atomic.Uint64

func uniqueName() string {
	return fmt.Sprintf("election-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), names.Add(1))
}

const (
	database = "leaderelection_test"
	table    = "elections"
)

// elections returns what makes an election after the other, each handle with a session
// of its own.
func elections(addr string) feedtest.NewElection {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := uniqueName()
		return func() leaderelection.RaceDecider {
			return rethinkdb.NewDecider(connect(t, addr), database, table, name, nil)
		}
	}
}

func open(ctx context.Context, address string) (*rethinkdb.Decider, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return rethinkdb.Open(ctx, u)
}

// opened returns the election at a URL, closed at the end of the test.
func opened(t testing.TB, address string) *rethinkdb.Decider {
	t.Helper()
	d, err := open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// state is a record to write.
func state(number uint64, token leaderelection.LeaderToken) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID: "a", TermExpiry: time.Now().Add(time.Minute), TermLength: 15 * time.Second,
		ElectionNumber: leaderelection.ElectionNumber(number), Incarnation: "i", Token: token,
	}
}

// write writes state number, and fails the test where that does not work.
func write(t testing.TB, d leaderelection.RaceDecider, number uint64, token leaderelection.LeaderToken) leaderelection.LeaderToken {
	t.Helper()
	next, err := d.WriteEntry(t.Context(), state(number, token))
	if err != nil {
		t.Fatalf("WriteEntry: %v", err)
	}
	return next
}

func read(t testing.TB, d leaderelection.RaceDecider) *leaderelection.RaceEntry {
	t.Helper()
	e, err := d.ReadCurrent(t.Context())
	if err != nil {
		t.Fatalf("ReadCurrent: %v", err)
	}
	return e
}

// news is what a feed yields.
type news struct {
	*leaderelection.RaceEntry
	err error
}

// follow runs a feed, and returns what it yields; the channel is closed when it has
// ended. It ends with the test at the latest.
func follow(t testing.TB, d leaderelection.ChangeFeed) <-chan news {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan news, 100)
	go func() {
		defer close(out)
		for e, err := range d.Changes(ctx) {
			out <- news{e, err}
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range out {
		}
	})
	return out
}

// next is the next thing that a feed yields.
func next(t testing.TB, feed <-chan news) news {
	t.Helper()
	select {
	case n, ok := <-feed:
		if !ok {
			t.Fatal("the feed has ended")
		}
		return n
	case <-time.After(30 * time.Second):
		t.Fatal("no news for 30 s")
		return news{}
	}
}

// number fails the test where the feed does not yield this record next.
func number(t testing.TB, feed <-chan news, want uint64) *leaderelection.RaceEntry {
	t.Helper()
	n := next(t, feed)
	if n.err != nil || uint64(n.ElectionNumber) != want {
		t.Fatalf("the feed yields %+v, %v; want election %d", n.RaceEntry, n.err, want)
	}
	return n.RaceEntry
}

// permanent fails the test where err does not say that no retry helps, or lacks one of
// these words.
func permanent(t testing.TB, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("%v does not wrap ErrPermanent", err)
	}
	says(t, err, words...)
}

// says fails the test where err lacks one of these words.
func says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}
