//go:build go1.25

package decidertest

import (
	"context"
	"sync"
	"testing"
)

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

// yields breaks each entry of a feed.
func yields(change func(e *entry)) func(d *decider) {
	return feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
		good(func(e *entry, err error) bool {
			if e != nil {
				change(e)
			}
			return yield(e, err)
		})
	})
}

// slowly makes writes slow enough for a feed to take each.
func slowly(breaks func(d *decider)) func(d *decider) {
	return func(d *decider) {
		d.write = func(ctx context.Context, e *entry) (token, error) {
			pause()
			return d.Decider.WriteEntry(ctx, e)
		}
		breaks(d)
	}
}

func brokenFeeds() []mutant {
	const first, later, burst = "Changes/CurrentRecordFirst", "Changes/LaterStatesFollow", "Changes/LastOfABurstArrives"
	const tokens, ends, left = "Changes/TokensAreAcceptedByWriteEntry", "Changes/EndsWithItsContext", "Changes/EndsWhenTheLoopIsLeft"
	return []mutant{
		{"skips the first", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			n := 0
			good(func(e *entry, err error) bool { n++; return n == 1 || yield(e, err) })
		}), map[string]string{first: "the feed yielded nothing"}},
		{"says nothing of an empty election", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, err error) bool { return e.ElectionNumber == 0 || yield(e, err) })
		}), map[string]string{"Changes/EmptyElectionFirst": "the feed yielded nothing"}},
		{"is empty by nil", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, err error) bool {
				if e.ElectionNumber == 0 {
					return yield(nil, nil)
				}
				return yield(e, err)
			})
		}), map[string]string{"Changes/EmptyElectionFirst": "nil without an error"}},
		{"says only the first", feeds(func(ctx context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, err error) bool { yield(e, err); return false })
			<-ctx.Done()
		}), map[string]string{later: "the feed yielded nothing"}},
		{"ends on its own", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, err error) bool { yield(e, err); return false })
		}), map[string]string{later: "ended on its own"}},
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
		{"drops what is vacant", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, err error) bool {
				return e.Vacant() && e.ElectionNumber > 0 || yield(e, err)
			})
		}), map[string]string{later: "the feed yielded nothing"}},
		{"has no room for what is long", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, err error) bool { return e != nil && len(e.ConnectionParams) > 8<<10 || yield(e, err) })
		}), map[string]string{"Changes/LargeRecordArrives": "the feed yielded nothing"}},
		{"has no tokens", yields(func(e *entry) { e.Token = nil }), map[string]string{tokens: "without a Token"}},
		{"has tokens of its own", yields(func(e *entry) { e.Token = alien{} }), map[string]string{tokens: "another kind of store"}},
		{"drops what it cannot hold", slowly(feeds(func(ctx context.Context, d *decider, _ feedSeq, yield yieldFunc) {
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
					default: // the consumer is slow: it is given up
						dropped = true
					}
				}
			}()
			for e := range held {
				if !yield(e, nil) {
					return
				}
			}
		})), map[string]string{burst: "the feed yielded nothing"}},
		{"subscribes too late", feeds(func(ctx context.Context, d *decider, _ feedSeq, yield yieldFunc) {
			if !yield(d.Entry(), nil) {
				return
			}
			pause()
			n := 0
			d.Decider.Changes(ctx)(func(e *entry, err error) bool { n++; return n == 1 || yield(e, err) })
		}), map[string]string{"Changes/NothingMissedAfterTheFirst": "the feed yielded nothing"}},
		oneFeedOnly(),
		sharedEntries(),
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
		{"entry with an error", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, _ error) bool { return yield(e, errBroken) })
		}), map[string]string{first: "an entry along with an error"}},
		{"fails", feeds(func(_ context.Context, _ *decider, _ feedSeq, yield yieldFunc) {
			yield(nil, errBroken)
		}), map[string]string{first: "the feed failed: broken", later: "the feed failed: broken"}},
		{"goes on after its loop", feeds(func(_ context.Context, _ *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, err error) bool {
				for range 2 {
					if yield(e, err) {
						return true
					}
				}
				return false
			})
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

// sharedEntries hands the same entries to all feeds of a handle.
func sharedEntries() mutant {
	return mutant{"feeds share entries", func(d *decider) {
		var mu sync.Mutex
		kept := map[token]*entry{}
		feeds(func(_ context.Context, d *decider, good feedSeq, yield yieldFunc) {
			good(func(e *entry, err error) bool {
				mu.Lock()
				if kept[e.Token] == nil {
					kept[e.Token] = e
				}
				e = kept[e.Token]
				mu.Unlock()
				return yield(e, err)
			})
		})(d)
	}, map[string]string{"Changes/EntryBelongsToCaller": "scribbled"}}
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
