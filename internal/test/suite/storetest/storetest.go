// Package storetest has the tests that are the same for all stores with a server and addresses. A
// store's own tests say how its server is started, and what an address looks like.
package storetest

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// Decider is what a store's Open returns.
type Decider interface {
	leaderelection.RaceDecider
	Close() error
}

// Server is one that can be killed, and started again with what it had on disk.
type Server interface {
	Stop()
	Start(t testing.TB)
}

// Store is a store whose elections are opened by address.
type Store[D Decider] struct {
	Open func(context.Context, *url.URL) (D, error)
	// Start starts a server, and returns its host and port. The Server may be nil for a store
	// without a feed.
	Start func(t testing.TB) (addr string, server Server)
	// Address is the form of an address, with $addr for the server's host and port and $election
	// for the election's name.
	Address string
	// Pause is that of feedtest.Trouble.
	Pause time.Duration
}

// At is the address of an election.
func (s Store[D]) At(addr, election string) string {
	return strings.NewReplacer("$addr", addr, "$election", election).Replace(s.Address)
}

// Opened returns the election at an address, closed at the end of the test.
func (s Store[D]) Opened(t testing.TB, address string) D {
	t.Helper()
	return feedtest.Opened(t, s.Open, address)
}

// Elections returns what makes an election after the other, each handle with a client of its own, to
// one of the servers after the other.
func (s Store[D]) Elections(addrs ...string) feedtest.NewElection {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		election, n := feedtest.Unique(), 0
		return func() leaderelection.RaceDecider {
			n++
			return s.Opened(t, s.At(addrs[n%len(addrs)], election))
		}
	}
}

// Processes has three candidates in processes of their own: one is killed, one stopped past its term,
// one cut off. See proctest for what is checked. TestMain calls proctest.Main.
func (s Store[D]) Processes(t *testing.T) {
	addr, _ := s.Start(t)
	proctest.Run(t, proctest.Options{Address: s.At(addr, "processes"), Upstream: addr})
}

// Faults fails the test if a leader loses its leadership because of what happens to its connections for
// a while.
func (s Store[D]) Faults(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	addr, _ := s.Start(t)
	relay := stores.NewRelay(t, addr)
	feedtest.Faults(t, s.Opened(t, s.At(relay.Addr, "faults")), s.Opened(t, s.At(addr, "faults")), relay)
}

// Abandons fails the test if the client that Open makes goes on with connections that have died without
// a word: see feedtest.Abandons. More is added to the address.
func (s Store[D]) Abandons(t *testing.T, more string) {
	stores.Nightly(t, "gives calls up by the wall clock")
	addr, _ := s.Start(t)
	relay := stores.NewRelay(t, addr)
	feedtest.Abandons(t, s.Opened(t, s.At(relay.Addr, "abandoned")+more), relay.Swallow)
}

// News fails the test if an observer learns of a change too late (see feedtest.News) after its
// connection was cut, after the server was killed, and after kill has ended its connections, if not
// nil.
func (s Store[D]) News(t *testing.T, kill func(addr string)) {
	stores.Nightly(t, "it breaks the store and waits")
	addr, server := s.Start(t)
	relay := stores.NewRelay(t, addr)
	troubles := map[string]feedtest.Trouble{
		"cut":           {Break: relay.Refuse, Heal: relay.Heal},
		"server killed": {Break: server.Stop, Heal: func() { server.Start(t) }},
	}
	if kill != nil {
		troubles["feed killed"] = feedtest.Trouble{Break: func() { kill(addr) }, Heal: func() { kill(addr) }}
	}
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			election := feedtest.Unique()
			trouble.Pause = s.Pause
			feedtest.News(t, s.Opened(t, s.At(addr, election)), s.Opened(t, s.At(relay.Addr, election)), trouble)
		})
	}
}

// Outage is feedtest.Outage with a server that is killed, and started again.
func (s Store[D]) Outage(t *testing.T) {
	stores.Nightly(t, "it breaks the store and waits")
	addr, server := s.Start(t)
	feedtest.Outage(t, s.Elections(addr), feedtest.Trouble{Break: server.Stop, Heal: func() { server.Start(t) }})
}

// Silence fails the test if a feed that is merely quiet ends, or if one does not end through which
// nothing comes any more, though its connection stands. The store's addresses have feed_silence. The
// error has these words.
func (s Store[D]) Silence(t *testing.T, words ...string) {
	stores.Nightly(t, "it cuts connections and waits")
	const silence = time.Second
	addr, _ := s.Start(t)
	relay := stores.NewRelay(t, addr)
	feed := feedtest.Follow(t, any(s.Opened(t, s.At(relay.Addr, "silence")+"&feed_silence="+silence.String())).(leaderelection.ChangeFeed))
	feedtest.Next(t, feed)
	select {
	case n := <-feed:
		t.Fatalf("while nothing happens the feed yields %+v", n)
	case <-time.After(3 * silence):
	}
	token := feedtest.Write(t, s.Opened(t, s.At(addr, "silence")), 1, nil)
	if e := feedtest.Number(t, feed, 1); e.Token != token {
		t.Errorf("the feed's token is %v, want %v", e.Token, token)
	}
	hung := time.Now()
	relay.Cut()
	feedtest.Passing(t, feedtest.Next(t, feed).Err, append(words, "silence")...)
	if took := time.Since(hung); took > 10*silence {
		t.Errorf("noticed after %v", took)
	}
	relay.Heal()
}

// Ensemble kills the one of three servers that leads the others: a leadership outlives that, and feeds
// tell of it. Then it kills the one after the next: nobody serves, which is told and may pass. Away, if
// not nil, is called then. When that server is back, the store goes on. At is an address that outlives
// both deaths.
func (s Store[D]) Ensemble(t *testing.T, at string, term time.Duration, servers []Server, leads int, away func()) {
	elected := make(chan context.Context, 1)
	ctx, cancel := context.WithCancel(t.Context())
	campaign, err := leaderelection.Config{
		Decider: s.Opened(t, at), LeaderID: "a", TermLength: term, ClockPolicy: leaderelection.SharedClock,
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { elected <- ctx },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = campaign.Wait() }()
	leading := <-elected
	d := s.Opened(t, at)
	first := feedtest.Read(t, d)

	servers[leads].Stop()
	begun := time.Now()
	eventually(t, "two extensions", func() error {
		for e, err := range any(d).(leaderelection.ChangeFeed).Changes(Within(t, time.Minute)) {
			if err != nil || e.Extension >= first.Extension+2 {
				return err
			}
		}
		return errors.New("the feed has told of none for a minute")
	})
	t.Logf("two extensions within %v of the death of the servers' leader", time.Since(begun).Round(time.Millisecond))
	if e := feedtest.Read(t, d); leading.Err() != nil || e.ElectionNumber != first.ElectionNumber {
		t.Errorf("the leadership has ended: %v; the record is %+v", context.Cause(leading), e)
	}

	second := servers[(leads+2)%len(servers)]
	second.Stop()
	if away != nil {
		away()
	}
	_, err = d.ReadCurrent(Within(t, 15*time.Second))
	feedtest.Passing(t, err)
	second.Start(t)
	eventually(t, "a read", func() error { return feedtest.ReadError(t, d) })
}

// eventually tries again and again. The errors must be such as may pass.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for begun := time.Now(); ; <-time.After(100 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if feedtest.Passing(t, err); t.Failed() || time.Since(begun) > 2*time.Minute {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// Within is a ctx for a store call.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Bounded has as many writes hang and be given up as a term of 15 s has in ten minutes, and fails the
// test if more than so many of the handle's sessions are counted at the server meanwhile, or if the
// handle does not write when release has ended it. Hang is called first.
func Bounded(t testing.TB, d leaderelection.RaceDecider, most int, hang func() (release func()), count func() int) {
	t.Helper()
	const calls = 160
	token := feedtest.Write(t, d, 1, nil)
	release := sync.OnceFunc(hang())
	defer release()
	failed := 0
	for i := range calls {
		if _, err := d.WriteEntry(Within(t, 20*time.Millisecond), feedtest.State(2, token)); err != nil {
			failed++
		}
		if n := count(); n > most {
			t.Fatalf("after %d calls %d sessions are open", i+1, n)
		}
	}
	if failed < calls {
		t.Errorf("%d of %d writes failed: do they hang?", failed, calls)
	}
	release()
	e := feedtest.Read(t, d)
	feedtest.Write(t, d, uint64(e.ElectionNumber)+1, e.Token)
}

// TLS are the parameters of an address that name the files of an authority's, and those of one of its
// certificates if it is not empty.
func TLS(a *feedtest.Authority, cert string) string {
	q := url.Values{"tls_ca": {a.Path("ca.pem")}}
	if cert != "" {
		q.Set("tls_cert", a.Path(cert+".pem"))
		q.Set("tls_key", a.Path(cert+".key"))
	}
	return q.Encode()
}

// Renewed replaces authority, certificates and keys, the server's as well, and fails the test if a
// handle that was opened before does not go on without a restart. Breaks ends the connections, and has
// the server read its files if it does not by itself.
func Renewed(t testing.TB, d leaderelection.RaceDecider, a *feedtest.Authority, breaks func()) {
	t.Helper()
	token := feedtest.Write(t, d, 1, nil)
	a.Renew()
	breaks()
	for range 10 { // over connections that it still takes for open
		if feedtest.ReadError(t, d) == nil {
			break
		}
	}
	feedtest.Write(t, d, 2, token)
	if feed, has := d.(leaderelection.ChangeFeed); has {
		feedtest.Number(t, feedtest.Follow(t, feed), 2)
	}
}

// LeavesAlone puts each of the contents, which are none of our records, in the place of an election, and
// fails the test if it is taken for a record (see feedtest.Foreign), or is not what get finds
// afterwards.
func LeavesAlone(t *testing.T, contents map[string]string, decider func(election string) leaderelection.RaceDecider, put func(election, content string), get func(election string) string) {
	for what, content := range contents {
		t.Run(what, func(t *testing.T) {
			election := feedtest.Unique()
			put(election, content)
			feedtest.Foreign(t, decider(election), election)
			if left := get(election); left != content {
				t.Errorf("what is left is %q", left)
			}
		})
	}
}

// Foreign is the token of another kind of store.
type Foreign struct{}

// CommitTS implements leaderelection.LeaderToken.
func (Foreign) CommitTS() time.Time { return time.Time{} }

// Exec runs a statement, and returns how many rows it affected.
func Exec(t testing.TB, db *sql.DB, query string, args ...any) int64 {
	t.Helper()
	r, err := db.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// Value is a query's only answer.
func Value[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}
