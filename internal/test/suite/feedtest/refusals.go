package feedtest

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Errors reads, writes, follows if the decider has a feed, and returns the errors. The feed
// must end with its own.
func Errors(t testing.TB, d leaderelection.RaceDecider) []error {
	t.Helper()
	_, read := d.ReadCurrent(t.Context())
	_, written := d.WriteEntry(t.Context(), State(1, nil))
	errs := []error{read, written}
	if f, pushes := d.(leaderelection.ChangeFeed); pushes {
		feed := Follow(t, f)
		n := Next(t, feed)
		if n.Err != nil {
			if next, more := <-feed; n.RaceEntry != nil || more {
				t.Errorf("the feed yields %+v, and then %+v", n, next)
			}
		}
		errs = append(errs, n.Err)
	}
	return errs
}

// Refuses fails the test where reading, writing or following ends in anything but an error
// that no retry cures, with these words.
func Refuses(t testing.TB, d leaderelection.RaceDecider, words ...string) {
	t.Helper()
	for _, err := range Errors(t, d) {
		Permanent(t, err, words...)
	}
}

// EndsCampaign fails the test where a campaign does not end because of what lies in the
// store, or leads.
func EndsCampaign(t testing.TB, d leaderelection.RaceDecider) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := leaderelection.Config{Decider: d, LeaderID: "a", MaxClockSkew: 100 * time.Millisecond, TermLength: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { t.Error("elected"); <-ctx.Done() }}
	Permanent(t, c.Acquire(ctx))
}

// NoRecords returns contents that cannot be taken for an election's record, by what they are.
func NoRecords() map[string]string {
	const whole = `{"leaderelection":1,"leader_id":"a","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":0,"incarnation":"i"}`
	return map[string]string{
		"empty":     "",
		"text":      "hello",
		"json":      `{"leader":"me"}`,
		"list":      "[1,2]",
		"binary":    "\x00\xff\xfe",
		"truncated": whole[:len(whole)/2],
		"edited":    strings.Replace(whole, "7", "-7", 1),
		"quoted":    strings.Replace(whole, "7", `"7"`, 1),
		"newer":     strings.Replace(whole, `n":1`, `n":2`, 1),
		"unknown":   strings.Replace(whole, "{", `{"must_understand":["color"],"color":"red",`, 1),
		"large":     whole + strings.Repeat(" ", 300<<10),
	}
}

// Foreign fails the test where a decider takes what lies in its place for a record, or
// writes over it. Its errors must have these words.
func Foreign(t testing.TB, d leaderelection.RaceDecider, words ...string) {
	t.Helper()
	for i, err := range Errors(t, d) {
		if written := i == 1; !written || !errors.Is(err, leaderelection.ErrLostRace) {
			Permanent(t, err, words...)
		}
	}
	EndsCampaign(t, d)
}

// OpenRefuses fails the test where open does not refuse each of these addresses for good,
// with the word that belongs to it, or tells the secret that some of them have: s3cret.
func OpenRefuses[D comparable](t testing.TB, open func(context.Context, *url.URL) (D, error), words map[string]string) {
	t.Helper()
	for address, word := range words {
		var none D
		d, err := Open(t.Context(), open, address)
		if Permanent(t, err, word); d != none || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, %v", address, d, err)
		}
	}
}

// TimesOut fails the test where reading, or writing with token, on a store that does not
// answer, ends long after its ctx, or with another error than the ctx's, or one that lacks
// one of these words.
func TimesOut(t testing.TB, within time.Duration, d leaderelection.RaceDecider, token leaderelection.LeaderToken, words ...string) {
	t.Helper()
	for doing, call := range map[string]func(context.Context) error{
		"reading": func(ctx context.Context) error { _, err := d.ReadCurrent(ctx); return err },
		"writing": func(ctx context.Context) error { _, err := d.WriteEntry(ctx, State(9, token)); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		begin := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(begin); took > within+patience/3 {
			t.Errorf("%s took %v", doing, took)
		}
		if Passing(t, err, append(words, doing)...); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", doing, err)
		}
	}
}

// Pauses fails unless err asks for a pause of this length.
func Pauses(t testing.TB, err error, want time.Duration) {
	t.Helper()
	var asked *leaderelection.RetryAfterError
	if !errors.As(err, &asked) || asked.After != want {
		t.Errorf("%v: want it to ask for a pause of %v", err, want)
	}
}
