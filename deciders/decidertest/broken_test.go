//go:build go1.25

package decidertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

type (
	feedSeq = iter.Seq2[*leaderelection.RaceEntry, error]
	entry   = leaderelection.RaceEntry
	token   = leaderelection.LeaderToken
)

var errBroken = errors.New("broken")

// call is a call of WriteEntry.
type call struct {
	d   *decider
	ctx context.Context
	e   *entry
}

// good is what it should come to.
func (c *call) good() (token, error) { return c.d.Decider.WriteEntry(c.ctx, c.e) }

// writes breaks the writes of which that is true.
func writes(is func(*call) bool, broken func(*call) (token, error)) func(d *decider) {
	return func(d *decider) {
		d.write = func(ctx context.Context, e *entry) (token, error) {
			if c := (&call{d, ctx, e}); is(c) {
				return broken(c)
			}
			return d.Decider.WriteEntry(ctx, e)
		}
	}
}

func always(*call) bool    { return true }
func creates(c *call) bool { return c.e.Token == nil }
func ended(c *call) bool   { return c.ctx.Err() != nil }
func foreign(c *call) bool { _, is := c.e.Token.(alien); return is }

// overwritten is a write without a condition.
func overwritten(c *call) (token, error) {
	c.d.Replace(c.e)
	return c.d.Entry().Token, nil
}

func refused(err error) func(*call) (token, error) {
	return func(*call) (token, error) { return nil, err }
}

// reads breaks what is read.
func reads(change func(e *entry)) func(d *decider) {
	return answers(func(e *entry) (*entry, error) {
		change(e)
		return e, nil
	})
}

// answers breaks what a read that worked returns.
func answers(answer func(e *entry) (*entry, error)) func(d *decider) {
	return func(d *decider) {
		d.read = func(ctx context.Context) (*entry, error) {
			e, err := d.Decider.ReadCurrent(ctx)
			if err != nil {
				return e, err
			}
			return answer(e)
		}
	}
}

// onEmpty returns that in place of an empty election.
func onEmpty(err error) func(d *decider) {
	return answers(func(e *entry) (*entry, error) {
		if e.ElectionNumber == 0 {
			return nil, err
		}
		return e, nil
	})
}

// loses breaks how a lost race is answered.
func loses(answer func(d *decider, e *entry, err error) (token, error)) func(d *decider) {
	return writes(always, func(c *call) (token, error) {
		t, err := c.good()
		if errors.Is(err, leaderelection.ErrLostRace) {
			return answer(c.d, c.e, err)
		}
		return t, err
	})
}

// wins breaks which token a write that worked returns.
func wins(answer func(t, old token) token) func(d *decider) {
	return writes(always, func(c *call) (token, error) {
		t, err := c.good()
		if err == nil {
			t = answer(t, c.e.Token)
		}
		return t, err
	})
}

// pause gives others time to come between, whatever the scheduler does.
func pause() { <-time.After(time.Millisecond) }

// timed is a token that says another time.
type timed struct {
	token
	at time.Time
}

func (t timed) CommitTS() time.Time { return t.at }

func brokenReads() []mutant {
	const fields, empty = "ReadCurrent/EveryFieldIsReadBack", "ReadCurrent/EmptyElectionIsVacant"
	ms := []mutant{
		{"read returns nil on empty", onEmpty(nil), map[string]string{empty: "nil without an error", "ReadCurrent/EmptyElectionsTokenCreates": "nil without an error"}},
		{"read fails on empty", onEmpty(errBroken), map[string]string{empty: "broken"}},
		{"read makes a record", func(d *decider) {
			d.read = func(ctx context.Context) (*entry, error) {
				_, _ = d.Decider.WriteEntry(ctx, &entry{})
				return d.Decider.ReadCurrent(ctx)
			}
		}, map[string]string{empty: "lost the race"}},
		{"empty election is number 1", reads(func(e *entry) { e.ElectionNumber = max(1, e.ElectionNumber) }), map[string]string{empty: "another ElectionNumber"}},
		{"read without token", reads(func(e *entry) { e.Token = nil }), map[string]string{"ReadCurrent/TokenIsOfTheVersionRead": "without a Token"}},
		{"read with an old token", func(d *decider) {
			first := d.Entry().Token
			reads(func(e *entry) { e.Token = first })(d)
		}, map[string]string{"ReadCurrent/TokenIsOfTheVersionRead": "lost the race"}},
		{"blanks are trimmed", reads(func(e *entry) { e.Successor = strings.TrimSpace(e.Successor) }), map[string]string{fields: "another Successor"}},
		{"blanks at the end are trimmed", reads(func(e *entry) { e.LeaderID = strings.TrimRight(e.LeaderID, " ") }), map[string]string{fields: "another LeaderID"}},
		{"empty texts are left out", reads(func(e *entry) { e.HostPort = slices.DeleteFunc(e.HostPort, func(s string) bool { return s == "" }) }), map[string]string{fields: "another HostPort"}},
		{"seconds only", reads(func(e *entry) { e.TermExpiry = e.TermExpiry.Truncate(time.Second) }), map[string]string{fields: "TermExpiry is off by -123.456789ms"}},
		{"microseconds only", reads(func(e *entry) { e.TermExpiry = e.TermExpiry.Truncate(time.Microsecond) }), map[string]string{fields: "TermExpiry is off by -789ns"}},
		{"zero time is 1970", reads(func(e *entry) {
			if e.TermExpiry.IsZero() {
				e.TermExpiry = time.Unix(0, 0)
			}
		}), map[string]string{fields: "TermExpiry is off"}},
		{"numbers are floats", reads(func(e *entry) { e.Extension = uint64(float64(e.Extension)) }), map[string]string{fields: "another Extension"}},
		{"release resets number", reads(func(e *entry) {
			if e.Vacant() {
				*e = entry{Token: e.Token}
			}
		}), map[string]string{"ReadCurrent/ReleaseKeepsTheNumber": "still returns an older record"}},
		{"reads share an entry", func(d *decider) {
			shared := sharing()
			answers(func(e *entry) (*entry, error) { return shared(e), nil })(d)
		}, map[string]string{"ReadCurrent/EntryBelongsToCaller": "scribbled"}},
		{"torn reads", func(d *decider) {
			d.read = func(ctx context.Context) (*entry, error) {
				e, _ := d.Decider.ReadCurrent(ctx)
				pause()
				later, err := d.Decider.ReadCurrent(ctx)
				if err == nil {
					later.LeaderID = e.LeaderID
				}
				return later, err
			}
			slowly(d)
		}, map[string]string{"ReadCurrent/ManyReadersAtOnce": "no record that was ever written"}},
		{"CommitTS is the epoch", wins(func(t, _ token) token { return timed{t, time.Unix(0, 0)} }), map[string]string{"ReadCurrent/CommitTSIsNearNowOrZero": "CommitTS is 1970"}},
		{"read ignores ctx", func(d *decider) {
			d.read = func(ctx context.Context) (*entry, error) {
				return d.Decider.ReadCurrent(context.WithoutCancel(ctx))
			}
		}, map[string]string{"Context/CancelledRead": "returned no error", "Context/DeadlinePassedRead": "returned no error"}},
		{"ended ctx is permanent", func(d *decider) {
			d.read = func(ctx context.Context) (*entry, error) {
				e, err := d.Decider.ReadCurrent(ctx)
				if pause(); ctx.Err() != nil {
					err = fmt.Errorf("%w: %w", leaderelection.ErrPermanent, err)
				}
				return e, err
			}
		}, map[string]string{"Context/CancelledRead": "no retry can help", "Context/EndsUnderTheCall": "no retry can help"}},
	}
	for name, zero := range map[string]func(e *entry){
		"LeaderID":         func(e *entry) { e.LeaderID = "" },
		"HostPort":         func(e *entry) { e.HostPort = nil },
		"ConnectionParams": func(e *entry) { e.ConnectionParams = nil },
		"TermExpiry":       func(e *entry) { e.TermExpiry = time.Time{} },
		"TermLength":       func(e *entry) { e.TermLength = 0 },
		"Incarnation":      func(e *entry) { e.Incarnation = "" },
		"Successor":        func(e *entry) { e.Successor = "" },
		"Unsynchronized":   func(e *entry) { e.Unsynchronized = false },
		"Extra":            func(e *entry) { e.Extra = nil },
	} {
		ms = append(ms, mutant{"drops " + name, reads(zero), map[string]string{fields: name}})
	}
	return append(ms,
		mutant{"drops ElectionNumber", reads(func(e *entry) { e.ElectionNumber = 0 }), map[string]string{fields: "older record"}},
		mutant{"drops Extension", reads(func(e *entry) { e.Extension = 0 }), map[string]string{fields: "older record"}},
	)
}

// yieldFunc is what a feed hands its entries to.
type yieldFunc = func(*entry, error) bool

// feeds breaks a feed: broken gets the good one, and may call yield as it likes.
func feeds(broken func(ctx context.Context, d *decider, good feedSeq, yield yieldFunc)) func(d *decider) {
	return func(d *decider) {
		d.changes = func(ctx context.Context, yield func(*entry, error) bool) {
			broken(ctx, d, d.Decider.Changes(ctx), yield)
		}
	}
}

// passes breaks what a feed makes of each entry. It is told which one that is, from 1 on.
func passes(pass func(n int, e *entry, yield yieldFunc) bool) func(d *decider) {
	return feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
		n := 0
		good(func(e *entry, _ error) bool { n++; return pass(n, e, yield) })
	})
}

// yields breaks each entry of a feed.
func yields(change func(e *entry)) func(d *decider) {
	return passes(func(_ int, e *entry, yield yieldFunc) bool {
		change(e)
		return yield(e, nil)
	})
}

// hides keeps entries back.
func hides(hidden func(n int, e *entry) bool) func(d *decider) {
	return passes(func(n int, e *entry, yield yieldFunc) bool { return hidden(n, e) || yield(e, nil) })
}

// slowly makes writes slow enough for a feed to take each.
func slowly(d *decider) {
	writes(always, func(c *call) (token, error) {
		pause()
		return c.good()
	})(d)
}

func brokenFeeds() []mutant {
	const first, later, burst = "Changes/CurrentRecordFirst", "Changes/LaterStatesFollow", "Changes/LastOfABurstArrives"
	const tokens, ends, left = "Changes/TokensAreAcceptedByWriteEntry", "Changes/EndsWithItsContext", "Changes/EndsWhenTheLoopIsLeft"
	return []mutant{
		{"skips the first", hides(func(n int, _ *entry) bool { return n == 1 }), map[string]string{first: "the feed yielded nothing"}},
		{"says nothing of an empty election", hides(func(_ int, e *entry) bool { return e.ElectionNumber == 0 }), map[string]string{"Changes/EmptyElectionFirst": "the feed yielded nothing"}},
		{"is empty by nil", passes(func(_ int, e *entry, yield yieldFunc) bool {
			if e.ElectionNumber == 0 {
				e = nil
			}
			return yield(e, nil)
		}), map[string]string{"Changes/EmptyElectionFirst": "nil without an error"}},
		{"says only the first", feeds(func(ctx context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, err error) bool { yield(e, err); return false })
			<-ctx.Done()
		}), map[string]string{later: "the feed yielded nothing"}},
		{"ends on its own", passes(func(_ int, e *entry, yield yieldFunc) bool { yield(e, nil); return false }), map[string]string{later: "ended on its own"}},
		{"is one behind", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			var kept *entry
			good(func(e *entry, err error) bool {
				before := kept
				kept = e
				if before == nil {
					before = e // the first is in time
				}
				return yield(before, err)
			})
		}), map[string]string{later: "the feed yielded nothing", burst: "the feed yielded nothing"}},
		{"goes back", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			var before *entry
			good(func(e *entry, err error) bool {
				if !yield(e, err) || before != nil && !yield(before, nil) {
					return false
				}
				before = e.Clone()
				return true
			})
		}), map[string]string{later: "the feed went back"}},
		{"drops a field", yields(func(e *entry) { e.Incarnation = "" }), map[string]string{later: "another Incarnation", first: "another Incarnation"}},
		{"drops what is vacant", hides(func(_ int, e *entry) bool { return e.Vacant() && e.ElectionNumber > 0 }), map[string]string{later: "the feed yielded nothing"}},
		{"has no room for what is long", hides(func(_ int, e *entry) bool { return len(e.ConnectionParams) > 8<<10 }), map[string]string{"Changes/LargeRecordArrives": "the feed yielded nothing"}},
		{"has no tokens", yields(func(e *entry) { e.Token = nil }), map[string]string{tokens: "without a Token"}},
		{"has tokens of its own", yields(func(e *entry) { e.Token = alien{} }), map[string]string{tokens: "another kind of store"}},
		{"drops what it cannot hold", func(d *decider) {
			slowly(d)
			feeds(dropping)(d)
		}, map[string]string{burst: "the feed yielded nothing"}},
		{"subscribes too late", feeds(func(ctx context.Context, d *decider, _ feedSeq, yield yieldFunc) {
			if !yield(d.Entry(), nil) {
				return
			}
			pause()
			n := 0
			d.Decider.Changes(ctx)(func(e *entry, err error) bool { n++; return n == 1 || yield(e, err) })
		}), map[string]string{"Changes/NothingMissedAfterTheFirst": "the feed yielded nothing"}},
		oneFeedOnly(),
		{"feeds share entries", func(d *decider) {
			shared := sharing()
			passes(func(_ int, e *entry, yield yieldFunc) bool { return yield(shared(e), nil) })(d)
		}, map[string]string{"Changes/EntryBelongsToCaller": "scribbled"}},
		{"ignores ctx", func(d *decider) {
			life := d.t.Context()
			feeds(func(_ context.Context, d *decider, _ feedSeq, yield yieldFunc) { d.Decider.Changes(life)(yield) })(d)
		}, map[string]string{ends: "has not ended", "Changes/EndsAtOnceWhereItsContextHasEnded": "has not ended"}},
		{"ends with an error", feeds(func(ctx context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			going := true
			good(func(e *entry, err error) bool { going = yield(e, err); return going })
			if going {
				yield(nil, ctx.Err())
			}
		}), map[string]string{ends: "must end without one", "Changes/EndsAtOnceWhereItsContextHasEnded": "must end without one"}},
		{"goes on after an error", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(yield)
			for range 2 {
				yield(nil, errBroken)
			}
		}), map[string]string{ends: "after its error the feed goes on"}},
		{"entry with an error", passes(func(_ int, e *entry, yield yieldFunc) bool { return yield(e, errBroken) }), map[string]string{first: "an entry along with an error"}},
		{"fails", feeds(func(_ context.Context, _ *decider, _ feedSeq, yield yieldFunc) {
			yield(nil, errBroken)
		}), map[string]string{first: "the feed failed: broken", later: "the feed failed: broken"}},
		{"goes on after its loop", passes(func(_ int, e *entry, yield yieldFunc) bool {
			going := yield(e, nil)
			return going || yield(e, nil)
		}), map[string]string{left: "went on after its loop was left"}},
		{"stays after its loop", feeds(func(ctx context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(yield)
			<-ctx.Done()
		}), map[string]string{left: "a feed whose loop was left"}},
	}
}

// oneFeedOnly has one feed for each handle: opening another silences it.
func oneFeedOnly() mutant {
	return mutant{"only one feed", func(d *decider) {
		var mu sync.Mutex
		silence := func() {}
		feeds(func(ctx context.Context, d *decider, _ feedSeq, yield yieldFunc) {
			mine, cancel := context.WithCancel(ctx)
			defer cancel()
			mu.Lock()
			silence()
			silence = cancel
			mu.Unlock()
			d.Decider.Changes(mine)(yield)
			<-ctx.Done()
		})(d)
	}, map[string]string{"Changes/SeveralFeedsAtOnce": "the feed yielded nothing"}}
}

// sharing returns what hands out one entry for each token.
func sharing() func(e *entry) *entry {
	var kept sync.Map
	return func(e *entry) *entry {
		first, _ := kept.LoadOrStore(e.Token, e)
		return first.(*entry)
	}
}

// dropping gives a consumer up that is slow.
func dropping(ctx context.Context, d *decider, _ feedSeq, yield yieldFunc) {
	held := make(chan *entry, 1)
	go func() {
		defer close(held)
		dropped := false
		for e := range d.Decider.Changes(ctx) {
			if dropped {
				continue
			}
			select {
			case held <- e:
			default:
				dropped = true
			}
		}
	}()
	for e := range held {
		if !yield(e, nil) {
			return
		}
	}
}

// leakyFeed leaves a goroutine behind with each feed.
func leakyFeed() mutant {
	return mutant{"leaves a goroutine", func(d *decider) {
		life := d.t.Context()
		feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			go func() { <-life.Done() }()
			good(yield)
		})(d)
	}, map[string]string{"Changes/LeavesNoGoroutine": "more goroutines run than before"}}
}

// This one counts goroutines, and so runs alone.
func TestLeakyFeedFails(t *testing.T) { leakyFeed().test(t) }
