//go:build go1.25

package rules

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// rumours is a store whose feed tells whatever the test says, as one does that tells
// of writes before they are committed, and not of their being undone. Reads and
// writes are those of a memory decider.
type rumours struct {
	*memory.Decider
	told chan *le.RaceEntry
	// applied is called with each entry that is to be written, before it is. An error
	// is the write's answer, and nothing is written.
	applied atomic.Pointer[func(e *le.RaceEntry) error]
	over    chan struct{} // ends what still hangs, at the test's end
}

func newRumours(t *testing.T, d *memory.Decider) *rumours {
	r := &rumours{Decider: d, told: make(chan *le.RaceEntry, 16), over: make(chan struct{})}
	t.Cleanup(func() { close(r.over) })
	return r
}

// stamped is the version of what the feed told: told of at a time of its own.
type stamped struct {
	le.LeaderToken
	at time.Time
}

func (s stamped) CommitTS() time.Time { return s.at }

func (r *rumours) apply(f func(e *le.RaceEntry) error) { r.applied.Store(&f) }

func (r *rumours) tell(e *le.RaceEntry) {
	e = e.Clone()
	e.Token = stamped{e.Token, time.Now()}
	r.told <- e
}

func (r *rumours) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	if s, ok := e.Token.(stamped); ok {
		e = e.Clone()
		e.Token = s.LeaderToken
	}
	if applied := r.applied.Load(); applied != nil {
		if err := (*applied)(e); err != nil {
			return nil, err
		}
	}
	return r.Decider.WriteEntry(ctx, e)
}

func (r *rumours) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		if !yield(r.Entry(), nil) {
			return
		}
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-r.told:
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

var errNoQuorum = errors.New("the primary has lost its replicas: not committed")

// uncommitted makes r apply writes without ever committing one: the feed tells of
// each, and the write fails some time later.
func (r *rumours) uncommitted(after time.Duration) {
	r.apply(func(e *le.RaceEntry) error {
		r.tell(e)
		select {
		case <-time.After(after):
		case <-r.over:
		}
		return errNoQuorum
	})
}

// Rule 7: a pushed record does not confirm the acquisition that it bears: its store
// may undo it.
func TestRule07PushedAcquisitionBeginsNothing(t *testing.T) {
	for name, after := range map[string]time.Duration{"fails soon": time.Second, "fails late": time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRumours(t, memory.NewDecider())
				r.uncommitted(after)
				a := join(t, r.Decider, "a", func(c *config) { c.Decider = r })
				for range 200 {
					sleep(T / 60)
					a.follows(t)
				}
				if a.count() > 0 {
					t.Fatal("a led by a record that was never committed")
				}
				r.applied.Store(nil)
				sleep(T)
				a.leads(t)
			})
		})
	}
}

// Rule 7: nor does it move a view on.
func TestRule07PushedExtensionMovesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		r := newRumours(t, d)
		a := join(t, d, "a", func(c *config) { c.Decider = r })
		sleep(time.Second)
		a.leads(t)
		end := a.View().Get()
		r.uncommitted(time.Second)
		for a.View().ValueInFuture() {
			if !a.View().Get().Equal(end) {
				t.Fatalf("a pushed record moved the view by %v", a.View().Get().Sub(end))
			}
			if time.Now().After(end) {
				t.Fatal("the view outlived its end")
			}
			sleep(T / 100)
		}
		if got := a.leadership(t, 0).cause; !errors.Is(got, le.ErrExpired) {
			t.Errorf("cause %v, want ErrExpired", got)
		}
	})
}

// Rule 7: a pushed record that bears an open write of one's own is a reason to read
// at once, and the read confirms it.
func TestRule07PushedRecordIsReadAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		r := newRumours(t, d)
		a := join(t, d, "a", func(c *config) { r.Decider, c.Decider = c.Decider.(*memory.Decider), r })
		sleep(time.Second)
		a.leads(t)
		end := a.View().Get()
		// The next extension lands, its answer is lost, and so is that of each read
		// until the back-off is long; then the feed tells of it.
		a.store.Inject(memory.Always(memory.Fault{Err: errNoQuorum}).On(memory.Read))
		landed := make(chan struct{})
		r.apply(func(e *le.RaceEntry) error {
			r.apply(func(*le.RaceEntry) error { return errNoQuorum })
			if _, err := r.Decider.Handle().WriteEntry(t.Context(), e); err != nil {
				t.Error(err)
			}
			close(landed)
			return errNoQuorum
		})
		<-landed
		sleep(4 * time.Second)
		a.store.Inject(nil)
		told, before := time.Now(), len(a.opsSince(time.Time{}, le.OpRead))
		r.tell(d.Entry())
		synctest.Wait()
		reads := a.opsSince(time.Time{}, le.OpRead)
		if len(reads) != before+1 || !reads[before].Start.Equal(told) {
			t.Fatalf("%d reads at the moment of the push, want one", len(reads)-before)
		}
		if got := a.View().Get(); !got.After(end) {
			t.Fatal("the read did not confirm the extension")
		}
		a.leads(t)
	})
}

// Contract: a pushed vacancy, or another's leadership, that was never committed costs
// time, and no more than a term and the margins.
func TestRule12FeedOfWhatIsUndone(t *testing.T) {
	for name, rumour := range map[string]func(e *le.RaceEntry){
		"vacancy": func(e *le.RaceEntry) { e.LeaderID, e.Extension = "", e.Extension+1 },
		"another's leadership": func(e *le.RaceEntry) {
			e.LeaderID, e.Incarnation, e.ElectionNumber, e.Extension = "c", "c's", e.ElectionNumber+1, 0
			e.TermExpiry = time.Now().Add(T)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				feeds := []*rumours{newRumours(t, d.Handle()), newRumours(t, d.Handle())}
				a := join(t, d, "a", func(c *config) { c.Decider = feeds[0] })
				synctest.Wait()
				a.leads(t)
				b := join(t, d, "b", func(c *config) { c.Decider = feeds[1] })
				sleep(time.Second)
				told := d.Entry()
				rumour(told)
				for _, f := range feeds {
					f.tell(told)
				}
				begin := time.Now()
				for led := false; !led; {
					if a.View().ValueInFuture() && b.View().ValueInFuture() {
						t.Fatal("two views at once")
					}
					sleep(10 * time.Millisecond)
					led = (a.View().ValueInFuture() || b.View().ValueInFuture()) && time.Since(begin) > time.Second
					if time.Since(begin) > 2*(T+S) {
						t.Fatalf("nobody leads %v after a feed told of what was undone", time.Since(begin))
					}
				}
			})
		})
	}
}
