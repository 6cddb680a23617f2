package health

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// The line tells of a store that is lost and found, names the first failure's time, and is told
// once for each change.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		answered := 0
		l := Line{Told: func(s string) { told = append(told, s) }, Answered: func() { answered++ }, Fit: func(s string) string { return strings.ReplaceAll(s, "hush", "xxxxx") }}
		tr := l.Trace()
		call := func(err error) {
			time.Sleep(time.Second)
			tr.StoreOp(leaderelection.StoreOp{Err: err})
		}
		l.Phase("standing by")
		call(errors.New("refused hush"))
		call(errors.New("refused hush"))
		if answered != 0 {
			t.Error("answered before the store did")
		}
		call(fmt.Errorf("x: %w", leaderelection.ErrLostRace))
		call(nil)
		l.Phase("leading, token 7")
		tr.Feed(leaderelection.FeedEvent{Err: errors.New("gone")})
		call(errors.New("gone"))
		lost := l.Account()
		call(nil)
		want := []string{
			"standing by",
			"standing by; the store has not answered yet: refused xxxxx",
			"standing by",
			"leading, token 7",
			"leading, token 7; the store does not answer since 2000-01-01T00:00:04Z: gone",
			"leading, token 7",
		}
		if !slices.Equal(told, want) || answered != 1 {
			t.Errorf("told %q, want %q; answered %d times", told, want, answered)
		}
		start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		if at := lost.LastErrorAt.Sub(start); !lost.Failing || lost.LastError != "gone" || at != 5*time.Second || lost.LastSuccess.Sub(start) != 4*time.Second {
			t.Errorf("%+v", lost)
		}
		if now := l.Account(); now.Failing || now.LastError != "gone" {
			t.Errorf("%+v", now)
		}
	})
}
