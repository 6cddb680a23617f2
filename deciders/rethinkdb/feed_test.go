package rethinkdb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestHandover(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) { feedtest.Handover(t, elections(addr)) })
}

func TestIdle(t *testing.T) {
	s := imitate(t)
	// Each replace is read back, which is a get.
	feedtest.Idle(t, elections(s.addr), func() int { return s.count("get") + s.count("changes") })
}

func TestNewsAfterCutConnection(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	s := imitate(t)
	proxy := stores.NewRelay(t, s.addr)
	writer := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	victim := rethinkdb.NewDecider(connect(t, proxy.Addr), database, table, "web", nil)
	feedtest.News(t, writer, victim, feedtest.Trouble{Break: proxy.Refuse, Heal: proxy.Heal})
}

func TestNewsAfterRestart(t *testing.T) {
	s := imitate(t)
	handle := elections(s.addr)(t)
	feedtest.News(t, handle(), handle(), feedtest.Trouble{Break: s.stop, Heal: func() { s.start(t, s.addr) }})
}

func TestOutage(t *testing.T) {
	s := imitate(t)
	feedtest.Outage(t, elections(s.addr), feedtest.Trouble{Break: s.stop, Heal: func() { s.start(t, s.addr) }})
}

// Three candidates in processes of their own, on the imitation in this one: one is killed,
// one stopped past its term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) {
		proctest.Run(t, proctest.Options{Address: "rethinkdb://" + addr + "/leaderelection_test/elections/" + feedtest.Unique() + "?timeout=1s", Upstream: addr})
	})
}

// What others do to the row by hand is told, too.
func TestChangesByHand(t *testing.T) {
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	feed := feedtest.Follow(t, d)
	first := feedtest.Number(t, feed, 0)
	feedtest.Write(t, d, 1, first.Token)
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

// A replica that goes away ends the feed.
func TestFeedIsAborted(t *testing.T) {
	s := imitate(t)
	d := rethinkdb.NewDecider(connect(t, s.addr), database, table, "web", nil)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	s.abort("Changefeed aborted (unavailable).")
	feedtest.Passing(t, feedtest.Next(t, feed).Err)
}

// A feed whose server has fallen silent ends with its ctx, for all that.
func TestFeedEndsThoughTheServerIsSilent(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	s := imitate(t)
	proxy := stores.NewRelay(t, s.addr)
	d := rethinkdb.NewDecider(connect(t, proxy.Addr), database, table, "web", nil)
	var ended time.Duration
	func() {
		begin := time.Now()
		for range d.Changes(t.Context()) {
			proxy.Cut()
			break
		}
		ended = time.Since(begin)
	}()
	if ended > 5*time.Second {
		t.Errorf("it took %v", ended)
	}
	proxy.Heal()
	var _ leaderelection.ChangeFeed = d
}
