//go:build go1.25

package consul_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// follow runs a feed, and has its goroutines end with the test.
func follow(t *testing.T, s *imitation, d leaderelection.ChangeFeed) <-chan feedtest.Item {
	t.Helper()
	t.Cleanup(func() { close(s.gone) })
	return feedtest.Follow(t, d)
}

// next is what the feed yields next, however long that takes.
func next(t *testing.T, feed <-chan feedtest.Item) feedtest.Item {
	t.Helper()
	select {
	case n := <-feed:
		return n
	case <-time.After(time.Hour):
		t.Fatal("no news for an hour")
	}
	return feedtest.Item{}
}

// silent fails the test if the feed has something to tell just now.
func silent(t *testing.T, feed <-chan feedtest.Item) {
	t.Helper()
	synctest.Wait()
	select {
	case n := <-feed:
		t.Errorf("the feed yields %+v", n)
	default:
	}
}

// tells fails the test if the feed does not tell of this election, and at once.
func tells(t *testing.T, feed <-chan feedtest.Item, number uint64) {
	t.Helper()
	begun := time.Now()
	feedtest.Number(t, feed, number)
	if took := time.Since(begun); took > 0 {
		t.Errorf("leadership %d was told of after %v", number, took)
	}
}

// An extension is one request, of which each follower hears by one. Where nothing happens
// a follower asks once in FeedWait.
func TestFeedCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImitation()
		d := s.decider(nil)
		token := feedtest.Write(t, d, 1, nil)
		feed := follow(t, s, d)
		tells(t, feed, 1)
		for n := uint64(2); n <= 11; n++ {
			token = feedtest.Write(t, d, n, token)
			tells(t, feed, n)
		}
		synctest.Wait()
		if reads, waits, writes := s.count(); reads != 1 || waits != 11 || writes != 11 {
			t.Errorf("%d reads, %d queries that wait, %d writes", reads, waits, writes)
		}
		time.Sleep(time.Hour)
		silent(t, feed)
		if _, waits, _ := s.count(); waits < 11+3600/54 || waits > 11+3600/50 {
			t.Errorf("%d queries in an idle hour", waits-11)
		}
		feedtest.Write(t, d, 12, token)
		tells(t, feed, 12)
	})
}

// A key that is deleted is told of as an election that is empty, and one made again.
func TestFeedOfDeletedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImitation()
		d := s.decider(nil)
		feed := follow(t, s, d)
		tells(t, feed, 0)
		token := feedtest.Write(t, d, 5, nil)
		tells(t, feed, 5)
		s.remove("elections/one")
		tells(t, feed, 0)
		if _, err := d.WriteEntry(t.Context(), feedtest.State(6, token)); err == nil {
			t.Error("it was written over what was deleted")
		}
		feedtest.Write(t, d, 1, nil)
		tells(t, feed, 1)
	})
}

// Servers that were restored show an older record, and count from an older index: the feed
// tells of the record as it is, by a consistent read, and of what is written after it.
func TestIndexGoesBack(t *testing.T) {
	for name, anew := range map[string]bool{"in place": false, "new servers": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newImitation()
				d := s.decider(nil)
				token := feedtest.Write(t, d, 1, nil)
				restore := s.snapshot()
				later := token
				for n := uint64(2); n < 50; n++ {
					later = feedtest.Write(t, d, n, later)
				}
				feed := follow(t, s, d)
				tells(t, feed, 49)
				synctest.Wait()
				restore(anew)
				// The query is answered when its time is up, if its index is still to come.
				begun := time.Now()
				if n := next(t, feed); n.Err != nil || n.ElectionNumber != 1 || time.Since(begun) > 54*time.Second {
					t.Fatalf("after %v the feed yields %+v", time.Since(begun), n)
				}
				feedtest.Write(t, d, 7, token)
				if n := next(t, feed); n.Err != nil || n.ElectionNumber != 7 || time.Since(begun) > 55*time.Second {
					t.Errorf("after %v the feed yields %+v", time.Since(begun), n)
				}
			})
		})
	}
}

// by is an election by way of a handler.
func by(h http.HandlerFunc, opts *consul.Options) *consul.Decider {
	return consul.NewDecider(&http.Client{Transport: &httpfault.Transport{Handler: h}}, "http://imitation.invalid", "elections/one", opts)
}

// What a server shows that lags behind is not told: a consistent read comes first.
func TestLaggingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, old := newImitation(), newImitation()
		old.impatient = true
		d := s.decider(nil)
		token := feedtest.Write(t, d, 1, nil)
		feedtest.Write(t, old.decider(nil), 1, nil)
		token = feedtest.Write(t, d, 2, token)
		var lags atomic.Bool
		lags.Store(true)
		var asked []string
		feed := follow(t, s, by(func(w http.ResponseWriter, r *http.Request) {
			lagging := lags.Load() // so that what comes after Store comes after the look at asked
			asked = append(asked, r.URL.RawQuery)
			if lagging && r.URL.Query().Has("index") {
				old.ServeHTTP(w, r)
			} else {
				s.ServeHTTP(w, r)
			}
		}, nil))
		tells(t, feed, 2)
		time.Sleep(time.Minute)
		silent(t, feed)
		if len(asked) > 40 || asked[1] == asked[2] || asked[2] != "consistent=" {
			t.Errorf("%d requests: %v", len(asked), asked)
		}
		lags.Store(false)
		feedtest.Write(t, d, 3, token)
		if n := next(t, feed); n.Err != nil || n.ElectionNumber != 3 {
			t.Errorf("%+v", n)
		}
	})
}

// If queries are answered at once, by a server or a proxy that does not wait, and if
// the index grows by what others write, the feed asks seldom, and tells of what is new.
func TestHotLoops(t *testing.T) {
	for name, trouble := range map[string]func(*imitation){
		"impatient": func(s *imitation) { s.do(func() { s.impatient = true }) },
		"others write": func(s *imitation) {
			go func() {
				for range 600_000 {
					select {
					case <-s.gone:
						return
					case <-time.After(time.Millisecond):
						s.do(s.change)
					}
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newImitation()
				d := s.decider(nil)
				feed := follow(t, s, d)
				tells(t, feed, 0)
				trouble(s)
				time.Sleep(2 * time.Minute)
				silent(t, feed)
				if _, waits, _ := s.count(); waits > 40 {
					t.Errorf("%d queries in two minutes", waits)
				}
				begun := time.Now()
				token := feedtest.Write(t, d, 1, nil)
				feedtest.Number(t, feed, 1)
				feedtest.Write(t, d, 2, token)
				feedtest.Number(t, feed, 2)
				if took := time.Since(begun); took > 6*time.Second {
					t.Errorf("told after %v", took)
				}
			})
		})
	}
}

// A query that finds nothing new for its whole time says nothing against the server: the
// next news is told at once. So is what a query only tells when its time is up.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImitation()
		d := s.decider(&consul.Options{FeedWait: 10 * time.Minute})
		token := feedtest.Write(t, d, 1, nil)
		feed := follow(t, s, d)
		tells(t, feed, 1)
		time.Sleep(5 * time.Hour)
		silent(t, feed)
		token = feedtest.Write(t, d, 2, token)
		tells(t, feed, 2)
		s.do(func() { s.stubborn = true })
		time.Sleep(11 * time.Minute) // the query under way may not know
		feedtest.Write(t, d, 3, token)
		begun := time.Now()
		if n := next(t, feed); n.Err != nil || n.ElectionNumber != 3 || time.Since(begun) > 11*time.Minute {
			t.Errorf("after %v the feed yields %+v", time.Since(begun), n)
		}
	})
}

// A query that is not answered ends the feed, a little after the latest time at which Consul
// would have answered, and not before; the first read too.
func TestSilentQueries(t *testing.T) {
	for _, mute := range []string{"consistent", "index"} {
		synctest.Test(t, func(t *testing.T) {
			s := newImitation()
			feedtest.Write(t, s.decider(nil), 1, nil)
			tr := s.transport()
			tr.Fault = func(r *http.Request) httpfault.Fault {
				return httpfault.Fault{LoseAnswer: r.URL.Query().Has(mute), Silent: true}
			}
			begun := time.Now()
			feed := follow(t, s, consul.NewDecider(&http.Client{Transport: tr}, "http://imitation.invalid", "elections/one", nil))
			least := time.Duration(0)
			if mute == "index" {
				tells(t, feed, 1)
				least = 50*time.Second + 50*time.Second/16
			}
			n := next(t, feed)
			feedtest.Passing(t, n.Err, "elections/one", "not answered in time")
			if took := time.Since(begun); took < least+5*time.Second || took > least+10*time.Second {
				t.Errorf("after %v", took)
			}
		})
	}
}

// Servers without a leader say so, and the feed ends, so that candidates poll.
func TestFeedWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImitation()
		feedtest.Write(t, s.decider(nil), 1, nil)
		feed := follow(t, s, s.decider(nil))
		tells(t, feed, 1)
		s.do(func() {
			s.noLeader = true
			s.change() // as one that was deposed does when it hears of the new leader's writes
			s.put(s.keys["elections/one"])
		})
		feedtest.Passing(t, next(t, feed).Err, "not from the servers' leader")
		feedtest.Passing(t, feedtest.ReadError(t, s.decider(nil)), "no leader just now")
	})
}

// Queries say how long to wait, and whence; the first is a consistent read.
func TestQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImitation()
		feedtest.Write(t, s.decider(nil), 1, nil)
		var asked []string
		feed := follow(t, s, by(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.RawQuery)
			s.ServeHTTP(w, r)
		}, &consul.Options{FeedWait: 90 * time.Second, Datacenter: "x"}))
		tells(t, feed, 1)
		synctest.Wait()
		if got := strings.Join(asked, " "); got != "consistent=&dc=x dc=x&index=21&wait=1m30s" {
			t.Error(got)
		}
	})
}

func says(status int, text string) httpfault.Fault {
	return httpfault.Fault{Status: status, Body: text}
}

// overHTTP is the store, as the imitation, for elections over HTTP.
var overHTTP = overhttp.Store{
	Serve: func() http.Handler { return newImitation() },
	Decider: func(c *http.Client) leaderelection.RaceDecider {
		return struct{ leaderelection.RaceDecider }{consul.NewDecider(c, "http://imitation.invalid", "elections/one", nil)} // without its feed
	},
	Place:  `Consul key "elections/one"`,
	Writes: func(r *http.Request) bool { return r.Method == http.MethodPut },
	Busy: map[string]httpfault.Fault{
		"NoLeader":    says(http.StatusInternalServerError, "No cluster leader"),
		"LostLeader":  says(http.StatusInternalServerError, "rpc error making call: raft apply failed: leadership lost while committing log"),
		"NotReady":    says(http.StatusInternalServerError, "Not ready to serve consistent reads"),
		"BrokenRPC":   says(http.StatusInternalServerError, "rpc error making call: EOF"),
		"RateLimit":   says(http.StatusTooManyRequests, "Your IP is issuing too many concurrent connections, please rate limit your calls\n"),
		"RetryLater":  says(http.StatusServiceUnavailable, "rate limit exceeded for operation that can only be performed by the leader, try again later"),
		"ElsewhereDC": says(http.StatusInternalServerError, "No path to datacenter"),
	},
}

// Whole elections, with whatever can go wrong with HTTP, by scenario and by seed; and with
// what else may answer in place of Consul.
func TestElections(t *testing.T) { overhttp.Elections(t, overHTTP) }

func TestSeeds(t *testing.T) { overhttp.Seeds(t, overHTTP, 50) }

func TestDisbelieves(t *testing.T) {
	overhttp.Disbelieves(t, overHTTP, newImitation().transport())
}

// Also with what is answered in place of the feed's queries.
func TestNobodyLeads(t *testing.T) {
	s := overHTTP
	s.Decider = func(c *http.Client) leaderelection.RaceDecider {
		return consul.NewDecider(c, "http://imitation.invalid", "elections/one", nil)
	}
	overhttp.NobodyLeads(t, s)
}
