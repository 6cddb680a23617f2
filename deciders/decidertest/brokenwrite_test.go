//go:build go1.25

package decidertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func brokenWrites() []mutant {
	const stale, next = "WriteEntry/StaleTokenLosesAndLeavesNoTrace", "WriteEntry/ReturnedTokenIsUsableNext"
	const nilOnly, current = "WriteEntry/NilTokenCreatesOnly", "WriteEntry/LostRaceErrorsCurrentIsTrue"
	return append([]mutant{
		{"last writer wins", writes(always, overwritten), map[string]string{
			stale: "succeeded with a stale token", nilOnly: "succeeded with a nil Token",
			"ReadCurrent/EmptyElectionsTokenCreatesOnce": "succeeded with the token of the empty election",
			"Race/OneUpdateWins":                         "20 of 20 racers won",
			"Race/OneCreationWins":                       "20 of 20 racers won",
			"Changes/TokensAreAcceptedByWriteEntry":      "when that was stale",
		}},
		{"checks, then writes", writes(always, func(c *call) (token, error) {
			if now := c.d.Entry(); c.e.Token != now.Token && (!creates(c) || !now.Vacant()) {
				return nil, leaderelection.ErrLostRace
			}
			pause()
			return overwritten(c)
		}), map[string]string{"Race/OneUpdateWins": "is not atomic", "Race/OneCreationWins": "is not atomic", "Race/NoUpdateIsLost": "older record"}},
		{"nil token overwrites", writes(creates, overwritten), map[string]string{nilOnly: "succeeded with a nil Token", current: "succeeded"}},
		{"nil token overwrites what is vacant", writes(func(c *call) bool { return creates(c) && c.d.Entry().Vacant() }, overwritten), map[string]string{nilOnly: "a vacant record"}},
		{"nil token is refused", writes(creates, refused(errBroken)), map[string]string{"WriteEntry/NilTokenCreates": "broken"}},
		{"empty election's token never creates", func(d *decider) {
			empty := d.Entry().Token
			writes(func(c *call) bool { return c.e.Token == empty }, refused(leaderelection.ErrLostRace))(d)
		}, map[string]string{"ReadCurrent/EmptyElectionsTokenCreates": "lost the race", "Changes/EmptyElectionFirst": "lost the race"}},
		{"no token returned", wins(func(_, _ token) token { return nil }), map[string]string{next: "neither a token nor an error", "Race/OneUpdateWins": "neither"}},
		{"old token returned", wins(func(t, old token) token {
			if old == nil {
				return t
			}
			return old
		}), map[string]string{next: "of the version that it replaced"}},
		{"token is read back after the write", writes(always, func(c *call) (token, error) {
			if _, err := c.good(); err != nil {
				return nil, err
			}
			pause()
			return c.d.Entry().Token, nil
		}), map[string]string{"Race/WinnersGoOn": "older record"}},
		{"versions are counted in a byte", bytesCount(), map[string]string{"WriteEntry/VersionsDoNotRepeat": "succeeded with the token of the version 256 writes ago"}},
		{"long records are refused", writes(func(c *call) bool { return len(c.e.ConnectionParams) > 64<<10 }, refused(errBroken)), map[string]string{"WriteEntry/LargeRecord": "broken"}},
		{"long records are cut off", writes(always, func(c *call) (token, error) {
			e := c.e.Clone()
			e.ConnectionParams = e.ConnectionParams[:min(len(e.ConnectionParams), 8<<10)]
			return c.d.Decider.WriteEntry(c.ctx, e)
		}), map[string]string{"WriteEntry/LargeRecord": "other ConnectionParams"}},
		{"records have a time to live", writes(always, func(c *call) (token, error) {
			t, err := c.good()
			if err == nil {
				expire := time.AfterFunc(100*time.Millisecond, func() {
					if c.d.Entry().Token == t {
						c.d.Replace(nil)
					}
				})
				c.d.t.Cleanup(func() { expire.Stop() })
			}
			return t, err
		}), map[string]string{"Pause/RecordIsStillThere": "older record"}},
		{"vacant records are cleared away when they are over", func(d *decider) {
			d.read = func(ctx context.Context) (*entry, error) {
				if e := d.Entry(); e.Vacant() && e.ElectionNumber > 0 && time.Now().After(e.TermExpiry.Add(time.Second)) {
					d.Replace(nil)
				}
				return d.Decider.ReadCurrent(ctx)
			}
		}, map[string]string{"Pause/RecordIsStillThere": "older record"}},
		{"tokens of one handle only", func(d *decider) {
			var mu sync.Mutex
			mine := map[token]bool{}
			d.write = func(ctx context.Context, e *entry) (token, error) {
				mu.Lock()
				defer mu.Unlock()
				if e.Token != nil && !mine[e.Token] {
					return nil, leaderelection.ErrLostRace
				}
				t, err := d.Decider.WriteEntry(ctx, e)
				mine[t] = true
				return t, err
			}
		}, map[string]string{next: "lost the race"}},
		{"lost race is no error", loses(func(d *decider, e *entry, _ error) (token, error) { return d.Entry().Token, nil }), map[string]string{stale: "succeeded", "Race/OneUpdateWins": "racers won"}},
		{"lost race is some error", loses(func(*decider, *entry, error) (token, error) { return nil, errBroken }), map[string]string{stale: "does not wrap ErrLostRace", nilOnly: "does not wrap"}},
		{"lost race is permanent", loses(func(_ *decider, _ *entry, err error) (token, error) {
			return nil, errors.Join(err, leaderelection.ErrPermanent)
		}), map[string]string{stale: "wraps ErrPermanent"}},
		{"lost race leaves a trace", loses(func(d *decider, e *entry, err error) (token, error) {
			now := d.Entry()
			now.HostPort = e.HostPort
			d.Replace(now)
			return nil, err
		}), map[string]string{stale: "another HostPort"}},
		{"lost race with a token", loses(func(d *decider, _ *entry, err error) (token, error) { return d.Entry().Token, err }), map[string]string{stale: "along with the error"}},
		{"Current is the loser's", loses(func(d *decider, e *entry, _ error) (token, error) {
			return nil, &leaderelection.LostRaceError{Place: "p", Current: with(d.Entry().Token, e)}
		}), map[string]string{current: "LostRaceError.Current: another LeaderID"}},
		{"Current has no token", loses(func(d *decider, e *entry, _ error) (token, error) {
			return nil, &leaderelection.LostRaceError{Place: "p", Current: with(nil, d.Entry())}
		}), map[string]string{current: "without a Token"}},
		{"Current has a stale token", loses(func(d *decider, e *entry, _ error) (token, error) {
			now := d.Entry()
			d.Replace(now)
			return nil, &leaderelection.LostRaceError{Place: "p", Current: now}
		}), map[string]string{current: "lost the race"}},
		{"Place is empty", loses(func(*decider, *entry, error) (token, error) { return nil, &leaderelection.LostRaceError{} }), map[string]string{current: "Place is empty"}},
		{"updates never win", writes(func(c *call) bool { return !creates(c) }, refused(leaderelection.ErrLostRace)), map[string]string{next: "lost the race", "Race/OneUpdateWins": "every one of 20 racers lost"}},
		{"changes the caller's entry", writes(always, func(c *call) (token, error) {
			c.e.TermExpiry = c.e.TermExpiry.Truncate(1e9)
			return c.good()
		}), map[string]string{"WriteEntry/EntryIsNotChanged": "changed its entry (TermExpiry is off"}},
		{"sets the caller's Token", writes(always, func(c *call) (token, error) {
			t, err := c.good()
			if err == nil {
				c.e.Token = t
			}
			return t, err
		}), map[string]string{"WriteEntry/EntryIsNotChanged": "changed its entry"}},
		{"keeps the caller's entry", func(d *decider) {
			var kept atomic.Pointer[entry]
			writes(always, func(c *call) (token, error) {
				t, err := c.good()
				if err == nil {
					kept.Store(c.e)
				}
				return t, err
			})(d)
			reads(func(e *entry) {
				if k := kept.Load(); k != nil {
					e.HostPort = k.HostPort
				}
			})(d)
		}, map[string]string{"WriteEntry/EntryIsNotKept": "another HostPort"}},
		{"any token will do", writes(foreign, overwritten), map[string]string{"WriteEntry/ForeignTokenIsRefused": "accepted a token of another type"}},
		{"foreign token panics", writes(foreign, func(*call) (token, error) { panic("interface conversion") }),
			map[string]string{"WriteEntry/ForeignTokenIsRefused": "panics: interface conversion"}},
		{"write ignores ctx", writes(always, func(c *call) (token, error) { return c.d.Decider.WriteEntry(context.WithoutCancel(c.ctx), c.e) }),
			map[string]string{"Context/CancelledWrite": "returned no error", "Context/DeadlinePassedWrite": "returned no error"}},
		{"ended ctx is a lost race", writes(ended, refused(leaderelection.ErrLostRace)), map[string]string{"Context/CancelledWrite": "says that a race was lost"}},
		{"ended ctx is hidden", writes(ended, refused(errBroken)), map[string]string{
			"Context/CancelledWrite": "does not wrap context canceled", "Context/DeadlinePassedWrite": "does not wrap context deadline exceeded",
		}},
		{"hangs when ctx has ended", writes(ended, func(c *call) (token, error) {
			<-c.d.t.Context().Done()
			return nil, c.ctx.Err()
		}), map[string]string{"Context/CancelledWrite": "not done after"}},
		{"version is the content but for Extension", contentHash(func(e *entry) { e.Extension = 0 }), map[string]string{
			"WriteEntry/ExtensionAloneMakesAVersion": "of the version that it replaced", "WriteEntry/NoABA": "first of three versions",
		}},
	}, sharedElection())
}

// byteToken is a version that comes back after 256 writes.
type byteToken byte

func (byteToken) CommitTS() (zero time.Time) { return zero }

func bytesCount() func(d *decider) {
	var mu sync.Mutex
	now := byteToken(0)
	return func(d *decider) {
		d.write = func(_ context.Context, e *entry) (token, error) {
			mu.Lock()
			defer mu.Unlock()
			if e.Token == nil {
				now = 0
			} else if e.Token != now {
				return nil, leaderelection.ErrLostRace
			}
			d.Replace(e)
			now++
			return now, nil
		}
	}
}

// sharedElection keeps all elections in one record.
func sharedElection() mutant {
	election := memory.NewDecider()
	return mutant{"elections share a record", func(d *decider) {
		*d = *newDecider(d.t, election.Handle())
	}, map[string]string{"ReadCurrent/ElectionsAreApart": "another election, still empty"}}
}

// hashToken is a version that is told by its content, as an ETag often is.
type hashToken string

func (hashToken) CommitTS() (zero time.Time) { return zero }

// contentHash makes the content the version. That is good enough if every
// write differs, and is not if Extension is left out.
func contentHash(leaveOut func(e *entry)) func(d *decider) {
	hash := func(e *entry) hashToken {
		c := e.Clone()
		c.TermExpiry = c.TermExpiry.UTC() // in which it is stored
		leaveOut(c)
		return hashToken(show(c))
	}
	return func(d *decider) {
		reads(func(e *entry) { e.Token = hash(e) })(d)
		d.write = func(ctx context.Context, e *entry) (token, error) {
			now := d.Entry()
			if e.Token != nil {
				if h, ours := e.Token.(hashToken); !ours {
					return nil, errBroken
				} else if h != hash(now) {
					return nil, leaderelection.ErrLostRace
				}
				e = with(now.Token, e)
			}
			_, err := d.Decider.WriteEntry(ctx, e)
			if err != nil {
				return nil, err
			}
			return hash(e), nil
		}
		d.changes = func(ctx context.Context, yield func(*entry, error) bool) {
			for e, err := range d.Decider.Changes(ctx) {
				if err == nil {
					e.Token = hash(e)
				}
				if !yield(e, err) {
					return
				}
			}
		}
	}
}
