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
	"time"

	"github.com/c8e606e4/leaderelection"
)

type (
	feedSeq = iter.Seq2[*leaderelection.RaceEntry, error]
	entry   = leaderelection.RaceEntry
	token   = leaderelection.LeaderToken
)

var errBroken = errors.New("broken")

// overwrite is a write without a condition.
func (d *decider) overwrite(_ context.Context, e *entry) (token, error) {
	d.Replace(e)
	return d.Entry().Token, nil
}

// reads breaks what is read.
func reads(change func(e *entry)) func(d *decider) {
	return func(d *decider) {
		d.read = func(ctx context.Context) (*entry, error) {
			e, err := d.Decider.ReadCurrent(ctx)
			if err == nil {
				change(e)
			}
			return e, err
		}
	}
}

// loses breaks how a lost race is answered.
func loses(answer func(d *decider, e *entry, err error) (token, error)) func(d *decider) {
	return func(d *decider) {
		d.write = func(ctx context.Context, e *entry) (token, error) {
			t, err := d.Decider.WriteEntry(ctx, e)
			if errors.Is(err, leaderelection.ErrLostRace) {
				return answer(d, e, err)
			}
			return t, err
		}
	}
}

// wins breaks which token a write that worked returns.
func wins(answer func(t, old token) token) func(d *decider) {
	return func(d *decider) {
		d.write = func(ctx context.Context, e *entry) (token, error) {
			t, err := d.Decider.WriteEntry(ctx, e)
			if err == nil {
				t = answer(t, e.Token)
			}
			return t, err
		}
	}
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
		{"read returns nil on empty", func(d *decider) {
			d.read = func(ctx context.Context) (*entry, error) {
				e, err := d.Decider.ReadCurrent(ctx)
				if err == nil && e.ElectionNumber == 0 {
					return nil, nil
				}
				return e, err
			}
		}, map[string]string{empty: "nil without an error", "ReadCurrent/EmptyElectionsTokenCreates": "nil without an error"}},
		{"read fails on empty", func(d *decider) {
			d.read = func(ctx context.Context) (*entry, error) {
				e, err := d.Decider.ReadCurrent(ctx)
				if err == nil && e.ElectionNumber == 0 {
					return nil, errBroken
				}
				return e, err
			}
		}, map[string]string{empty: "broken"}},
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
		{"release resets number", func(d *decider) {
			reads(func(e *entry) {
				if e.Vacant() {
					*e = entry{Token: e.Token}
				}
			})(d)
		}, map[string]string{"ReadCurrent/ReleaseKeepsTheNumber": "still returns an older record"}},
		{"reads share an entry", func(d *decider) {
			var mu sync.Mutex
			kept := map[token]*entry{}
			d.read = func(ctx context.Context) (*entry, error) {
				e, err := d.Decider.ReadCurrent(ctx)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && kept[e.Token] == nil {
					kept[e.Token] = e
				}
				if err == nil {
					e = kept[e.Token]
				}
				return e, err
			}
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
			d.write = func(ctx context.Context, e *entry) (token, error) {
				pause()
				return d.Decider.WriteEntry(ctx, e)
			}
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
	} {
		ms = append(ms, mutant{"drops " + name, reads(zero), map[string]string{fields: name}})
	}
	return append(ms,
		mutant{"drops ElectionNumber", reads(func(e *entry) { e.ElectionNumber = 0 }), map[string]string{fields: "older record"}},
		mutant{"drops Extension", reads(func(e *entry) { e.Extension = 0 }), map[string]string{fields: "older record"}},
	)
}
