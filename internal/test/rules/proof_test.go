//go:build go1.25

package rules

import (
	"context"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// credulous takes whatever comes back for the answer to a write.
type credulous struct {
	le.RaceDecider
	lies   bool // nothing is written
	answer func(*le.RaceEntry) le.LeaderToken
}

func (c *credulous) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	if !c.lies {
		if _, err := c.RaceDecider.WriteEntry(ctx, e); err != nil {
			return nil, err
		}
	}
	return c.answer(e), nil
}

// several is a token of a type that cannot be compared by ==.
type several []le.LeaderToken

func (s several) CommitTS() time.Time { return s[0].CommitTS() }

// severally has tokens of that type.
type severally struct{ le.RaceDecider }

func (s severally) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := s.RaceDecider.ReadCurrent(ctx)
	if err == nil && e.Token != nil {
		e.Token = several{e.Token}
	}
	return e, err
}

func (s severally) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	e = e.Clone()
	if t, ok := e.Token.(several); ok {
		e.Token = t[0]
	}
	token, err := s.RaceDecider.WriteEntry(ctx, e)
	if err != nil {
		return nil, err
	}
	return several{token}, nil
}

// TestRule19SuccessIsProved: a success without a token, or with the one that was written over, is an open
// question. It is read, and only that decides.
func TestRule19SuccessIsProved(t *testing.T) {
	for what, answer := range map[string]func(*le.RaceEntry) le.LeaderToken{
		"no token":  func(*le.RaceEntry) le.LeaderToken { return nil },
		"the older": func(e *le.RaceEntry) le.LeaderToken { return e.Token },
	} {
		for _, lies := range []bool{true, false} {
			for _, severalOf := range []bool{true, false} {
				t.Run(what, func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						d := memory.NewDecider()
						d.Replace(&le.RaceEntry{ElectionNumber: 7, TermExpiry: time.Now(), TermLength: T, Incarnation: "x"})
						a := join(t, d, "a", func(c *config) {
							inner := c.Decider.(*memory.Decider).Polled()
							if severalOf {
								inner = severally{inner}
							}
							c.Decider = &credulous{inner, lies, answer}
						})
						sleep(2 * T)
						if lies {
							if a.follows(t); a.count() > 0 {
								t.Errorf("it has led by what was never written")
							}
							if ops := a.opsSince(time.Time{}, le.OpAcquire); len(ops) == 0 || ops[0].Err == nil {
								t.Errorf("%+v: want an error", ops)
							}
							return
						}
						a.leads(t) // the record shows it
					})
				})
			}
		}
	}
}
