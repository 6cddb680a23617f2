//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

var errRefused = errors.New("dial tcp 192.0.2.7:5432: connect: connection refused")

// outages are stores that fail in all ways.
var outages = map[string]func() memory.Faults{
	"refused": func() memory.Faults { return memory.Fail(errRefused) },
	"hangs":   func() memory.Faults { return memory.Always(memory.Fault{AnswerDelay: 10 * time.Hour}) },
	"by turns": func() memory.Faults {
		n := 0
		return func(memory.Op) memory.Fault {
			if n++; n%2 == 0 {
				return memory.Fault{Err: fmt.Errorf("403: %w", le.ErrPermanent)}
			}
			return memory.Fault{Err: errRefused}
		}
	},
}

// An outage takes few lines of the log: one or two when it begins, one a minute, and one or two when
// it is over. The lines say how many calls have failed. So for a leader, a standby and an observer.
func TestOutageIsLoggedBriefly(t *testing.T) {
	for name, fault := range outages {
		for _, feed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, feed %v", name, feed), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					d := memory.NewDecider()
					logs, stores := map[string]*lines{}, []*memory.Decider{}
					for _, id := range []string{"leader", "standby"} {
						logs[id] = &lines{}
						m := join(t, d, id, logged(logs[id]), func(c *config) {
							if !feed {
								polled(c)
							}
						})
						stores = append(stores, m.store)
						sleep(time.Second)
					}
					logs["observer"] = &lines{}
					o := d.Handle()
					var observed le.RaceDecider = o
					if !feed {
						observed = o.Polled()
					}
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error, 1)
					go func() {
						done <- le.WatchConfig{Decider: observed, MaxClockSkew: S, Logger: slog.New(slog.NewTextHandler(logs["observer"], nil))}.Watch(ctx, func(context.Context, le.RaceEntry) {})
					}()
					sleep(time.Minute)
					for _, l := range logs {
						if l.count("level=WARN") > 0 {
							t.Errorf("in calm:\n%s", &l.text)
						}
						l.clear()
					}
					for _, s := range append(stores, o) {
						s.Inject(fault())
					}
					sleep(time.Minute)
					for who, l := range logs {
						if n := l.count("level=WARN"); n < 1 || n > 6 || l.count("operation failed") == 0 {
							t.Errorf("%s: %d warnings in the first minute:\n%s", who, n, &l.text)
						}
						l.clear()
					}
					sleep(time.Hour)
					for who, l := range logs {
						if n := l.count("level=WARN"); n < 40 || n > 61 || l.count(" failed=") < n-1 {
							t.Errorf("%s: %d warnings in an hour:\n%s", who, n, &l.text)
						}
						l.clear()
					}
					for _, s := range append(stores, o) {
						s.Inject(nil)
					}
					sleep(2 * time.Minute)
					for who, l := range logs {
						if l.count("the store is back") != 1 || l.count(" after=1h") < 1 || l.count(" failed=") < 1 || l.count("\n") > 6 {
							t.Errorf("%s, when it is over:\n%s", who, &l.text)
						}
					}
					cancel()
					<-done
				})
			})
		}
	}
}

// If calls fail and work by turns, that too is few lines.
func TestFlappingStoreIsLoggedBriefly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l lines
		a := join(t, memory.NewDecider(), "a", polled, logged(&l))
		sleep(time.Minute)
		a.store.Inject(everyOther(nil))
		l.clear()
		sleep(time.Hour)
		if n := l.count("tried again"); n < 2 || n > 61 {
			t.Errorf("%d warnings in an hour:\n%s", n, &l.text)
		}
		if n := l.count("the store is back"); n > 61 {
			t.Errorf("it is back %d times in an hour", n)
		}
	})
}

// While writes fail, the store is not back, though reads work.
func TestHalfAnOutageIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l lines
		a := join(t, memory.NewDecider(), "a", polled, logged(&l))
		sleep(time.Minute)
		a.store.Inject(memory.Fail(errRefused).On(memory.Write))
		sleep(time.Hour)
		if n := l.count("the store is back"); n > 0 {
			t.Errorf("it is back %d times while writes fail:\n%s", n, &l.text)
		}
		a.store.Inject(nil)
		sleep(T)
		if n := l.count("the store is back"); n != 1 {
			t.Errorf("it is back %d times:\n%s", n, &l.text)
		}
	})
}

// A second outage has lines of its own, for a leader and for a standby, whose feed fails as well.
func TestEachOutageIsLogged(t *testing.T) {
	for _, feed := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			var l lines
			d, feeds := memory.NewDecider(), 0
			if feed {
				join(t, d, "leader")
				sleep(time.Second)
				feeds = 1
			}
			a := join(t, d, "a", logged(&l), func(c *config) {
				if !feed {
					polled(c)
				}
			})
			for range 2 {
				sleep(5 * time.Minute)
				l.clear()
				a.store.Inject(memory.LoseRequests())
				sleep(30 * time.Second)
				a.store.Inject(nil)
				sleep(time.Minute)
				if l.count("it will be tried again") != 1 || l.count("the store is back") != 1 ||
					l.count("the feed failed") != feeds || l.count("the feed delivers") != feeds || l.count("failed=0") > 0 {
					t.Errorf("logged:\n%s", &l.text)
				}
			}
		})
	}
}

// That others' writes work does not say so of a candidate that alone may not write.
func TestWhoMayNotWriteHearsOfNoEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l lines
		d := memory.NewDecider()
		a := join(t, d, "a", polled, logged(&l))
		sleep(time.Minute)
		a.store.Inject(memory.Fail(errRefused).On(memory.Write))
		n := d.Entry().ElectionNumber
		for range 60 {
			n++
			d.Replace(rival(n))
			sleep(T + 30*time.Second)
		}
		if n := l.count("the store is back"); n > 0 || l.count("level=WARN") == 0 {
			t.Errorf("it is back %d times while its writes fail:\n%s", n, &l.text)
		}
	})
}

// A write that lost a race shows that the store takes writes again. If another's record shows that a
// write that failed is over, the outage is over when no other has failed for a minute. So a standby,
// which writes no more for long, does not leave an outage of writes open.
func TestOutageOfWritesIsOverWithoutAWrite(t *testing.T) {
	for name, then := range map[string]func(d *memory.Decider) memory.Fault{
		"lost race": func(*memory.Decider) memory.Fault { return memory.Fault{Err: le.ErrLostRace} },
		"news": func(d *memory.Decider) memory.Fault {
			e := rival(first + 5)
			e.TermLength, e.TermExpiry = time.Hour, time.Now().Add(time.Hour)
			d.Replace(e)
			return memory.Fault{Err: errRefused}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var l lines
				d := memory.NewDecider()
				d.Replace(rival(first))
				writes := 0
				join(t, d, "a", logged(&l), func(c *config) {
					c.Decider.(*memory.Decider).Inject(memory.Faults(func(memory.Op) memory.Fault {
						if writes++; writes == 1 {
							return memory.Fault{Err: errRefused}
						}
						return then(d)
					}).On(memory.Write))
				}, polled)
				sleep(2*T + T/2 + time.Minute)
				if writes < 2 || l.count("the store is back") != 1 {
					t.Errorf("after %d writes:\n%s", writes, &l.text)
				}
			})
		})
	}
}

// noFeed is a store that can push, by its type, and never does.
type noFeed struct{ le.RaceDecider }

func (noFeed) Changes(context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) { yield(nil, errRefused) }
}

// A store that cannot push is polled for good. One line says so.
func TestFeedThatNeverWorksIsLoggedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l lines
		join(t, memory.NewDecider(), "a", logged(&l), func(c *config) {
			c.Decider = noFeed{c.Decider.(*memory.Decider).Polled()}
		})
		sleep(time.Hour)
		if n := l.count("the feed failed"); n != 1 || l.count("level=WARN") != 1 {
			t.Errorf("logged:\n%s", &l.text)
		}
	})
}
