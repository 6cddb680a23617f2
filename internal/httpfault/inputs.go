package httpfault

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Refused fails unless reading and writing both end in an error that no retry
// cures and that has all these words in it.
func Refused(t *testing.T, d leaderelection.RaceDecider, words ...string) {
	t.Helper()
	_, read := d.ReadCurrent(t.Context())
	_, written := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, Incarnation: "i"})
	for what, err := range map[string]error{"ReadCurrent": read, "WriteEntry": written} {
		if !errors.Is(err, leaderelection.ErrPermanent) {
			t.Errorf("%s: %v, want an error that wraps ErrPermanent", what, err)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, which does not say %q", what, err, w)
			}
		}
	}
}

// EndsCampaign fails unless a campaign ends because of what lies in the store, and
// never leads.
func EndsCampaign(t *testing.T, d leaderelection.RaceDecider) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := leaderelection.Config{Decider: d, LeaderID: "a", MaxClockSkew: 100 * time.Millisecond, TermLength: 2 * time.Second,
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { t.Error("elected"); <-ctx.Done() }}
	if err := c.Acquire(ctx); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("Acquire = %v, want an error that wraps ErrPermanent", err)
	}
}
