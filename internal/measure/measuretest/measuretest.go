// Package measuretest is what the tests of leprom and leotel share.
package measuretest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// Term and skew of most tests.
const (
	T = 15 * time.Second
	S = time.Second
)

// Expect checks series, to a millisecond where they are times.
func Expect(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if g, ok := got[name]; !ok || math.Abs(g-v) > 1e-3 {
			t.Errorf("%s is %v (%v), want %v", name, g, ok, v)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

// Everything tells of all that can happen to a candidate.
func Everything(c *le.Trace) {
	c.News(le.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermExpiry: time.Now()})
	for i, cause := range []error{le.ErrOusted, le.ErrExpired, le.ErrResigned, le.ErrUnhealthy, le.ErrClockSkew, nil, errors.New("any"), fmt.Errorf("some %w", le.ErrOusted)} {
		c.StatusChanged(le.StatusChange{To: le.Leading, Number: le.ElectionNumber(i)})
		c.StatusChanged(le.StatusChange{From: le.Leading, To: le.Draining, Cause: cause})
	}
	for _, kind := range []le.OpKind{le.OpRead, le.OpAcquire, le.OpExtend, le.OpRelease} {
		for i, err := range []error{nil, le.ErrLostRace, le.ErrPermanent, context.DeadlineExceeded, context.Canceled, errors.New("any"), errors.New("other")} {
			c.StoreOp(le.StoreOp{Kind: kind, Err: err, Abandoned: i == 3, Start: time.Now(), CommitTS: time.Now()})
		}
	}
	c.Extended(le.ViewExtended{Number: 1, Extension: 1, Remaining: time.Second, Expiry: time.Now()})
	for _, err := range []error{nil, errors.New("any")} {
		c.Feed(le.FeedEvent{Err: err})
	}
	c.ClockSkew(&le.ClockSkewError{})
	c.DuplicateID(le.RaceEntry{})
}
