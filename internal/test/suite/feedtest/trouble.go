package feedtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// Trouble is something that befalls a store, or the way to it.
type Trouble struct {
	Break, Heal func()
	// Pause is for how long the store's client may wait after that before it connects again.
	Pause time.Duration
}

// News fails t where an observer learns of a change later than its poll interval
// after there was a way to learn of it: the change is written while there is
// trouble, or as soon as it is over where nobody can write before. Victim is the
// observer's handle, writer another one.
func News(t *testing.T, writer, victim leaderelection.RaceDecider, trouble Trouble) {
	t.Helper()
	stores.Nightly(t, "it breaks the store and waits")
	const (
		poll  = 500 * time.Millisecond
		slack = 1500 * time.Millisecond // for a busy machine
	)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan leaderelection.ElectionNumber, 100)
	ended := make(chan struct{})
	begun := time.Now()
	note := func(format string, args ...any) {
		t.Logf("%8v %s", time.Since(begun).Round(time.Millisecond), fmt.Sprintf(format, args...))
	}
	trace := &leaderelection.Trace{
		StoreOp: func(op leaderelection.StoreOp) {
			note("%s took %v, abandoned %v: %v", op.Kind, op.Duration.Round(time.Millisecond), op.Abandoned, op.Err)
		},
		Feed: func(f leaderelection.FeedEvent) { note("feed: %v", f.Err) },
		News: func(e leaderelection.RaceEntry) { note("news of number %d", e.ElectionNumber) },
	}
	go func() {
		defer close(ended)
		_ = leaderelection.WatchConfig{Decider: victim, PollInterval: poll, Trace: trace}.
			Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) { heard <- e.ElectionNumber })
	}()
	defer func() { <-ended }()
	defer cancel()

	number := uint64(1)
	put(t, writer, number)
	hear := func(number uint64) {
		for await(t, "the news of a write", heard) < leaderelection.ElectionNumber(number) {
		}
	}
	hear(number)
	for range 3 {
		number++
		trouble.Break()
		written := make(chan time.Time, 1)
		go func() {
			put(t, writer, number)
			written <- time.Now()
		}()
		// Long enough for the feed to notice, where it notices at all.
		wait(2 * time.Second)
		trouble.Heal()
		since := time.Now()
		note("healed")
		if at := await(t, "the write", written); at.After(since) {
			since = at
		}
		note("the write is known to be done")
		hear(number)
		late := time.Since(since)
		t.Logf("the news came %v after there was a way to learn of it", max(0, late).Round(time.Millisecond))
		if late > poll+trouble.Pause+slack {
			t.Errorf("the news came %v late; the poll interval is %v, and the client pauses for %v", late, poll, trouble.Pause)
		}
		// And then by the feed again.
		number++
		put(t, writer, number)
		hear(number)
	}
}

// put writes record number, for as long as it takes.
func put(t *testing.T, d leaderelection.RaceDecider, number uint64) {
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		e, err := d.ReadCurrent(ctx)
		if err == nil && uint64(e.ElectionNumber) < number {
			next := record(number)
			next.Token = e.Token
			_, err = d.WriteEntry(ctx, next)
		}
		cancel()
		if err == nil {
			return
		}
		wait(20 * time.Millisecond)
	}
}

// wait waits, where there is nothing to wait for but time itself.
func wait(d time.Duration) { <-time.After(d) }

// Outage fails t where a leadership does not survive an outage shorter than half its view,
// or outlives its view in a longer one, or where nobody leads soon after that.
func Outage(t *testing.T, newElection NewElection, trouble Trouble) {
	t.Helper()
	stores.Nightly(t, "it breaks the store and waits")
	const (
		term = 8 * time.Second // a busy machine takes two seconds to start a server again
		skew = 100 * time.Millisecond
		half = (term - skew) / 2 // of a view: from one extension to the next
	)
	handle := newElection(t)
	elected := make(chan leadership, 3)
	for _, id := range []string{"a", "b", "c"} {
		start(t, leaderelection.Config{Decider: handle(), LeaderID: id, TermLength: term, MaxClockSkew: skew}, elected)
	}
	r := await(t, "a leader", elected)
	extended := func() time.Time {
		end := r.view.Get()
		until(t, "an extension", 2*term, func() bool { return r.view.Get().After(end) })
		return r.view.Get()
	}
	for short, try := false, 1; !short; try++ {
		extended()
		broken := time.Now()
		trouble.Break()
		trouble.Heal()
		if took := time.Since(broken); took < half*3/4 {
			short = true
			extended()
			if !r.view.ValueInFuture() || r.ctx.Err() != nil {
				t.Errorf("the leadership did not survive an outage of %v: %v", took, context.Cause(r.ctx))
			}
			t.Logf("the leadership survived an outage of %v", took.Round(time.Millisecond))
		} else if try == 5 {
			t.Fatalf("the store takes %v to be back: no outage is short", took)
		} else if r.ctx.Err() != nil {
			r = await(t, "another leader", elected)
		}
	}

	end := extended()
	trouble.Break()
	<-r.ctx.Done()
	now := time.Now()
	if cause := context.Cause(r.ctx); !errors.Is(cause, leaderelection.ErrExpired) {
		t.Errorf("with the store gone the leadership ends with %v, want ErrExpired", cause)
	}
	if early := end.Sub(now); early > 50*time.Millisecond {
		// The very last extension may have been confirmed in between.
		t.Errorf("with the store gone the leadership ended %v before its view", early)
	}
	if r.view.ValueInFuture() {
		t.Errorf("ctx has ended, and the view goes on")
	}
	wait(skew)
	trouble.Heal()
	healed := time.Now()
	next := await(t, "a leader after the outage", elected)
	took := next.at.Sub(healed)
	t.Logf("a leader %v after the outage", took.Round(time.Millisecond))
	if bound := term + 2*skew + time.Second; took > bound {
		t.Errorf("a leader %v after the outage; want one within %v", took, bound)
	}
	if next.view.ElectionNumber() <= r.view.ElectionNumber() {
		t.Errorf("leadership %d came after leadership %d", next.view.ElectionNumber(), r.view.ElectionNumber())
	}
}

// Faults holds a leader on a store that speaks TCP to what it must survive: an answer lost after the
// write has landed, an answer later than the attempt, a request cut off half way, a connection
// closed. A leader with time left keeps its leadership through each, and extends it when the fault
// is over. It leads through proxy, with the handle leader; another stands by with the handle standby.
func Faults(t *testing.T, leader, standby leaderelection.RaceDecider, proxy *stores.Relay) {
	t.Helper()
	stores.Nightly(t, "it cuts connections and waits")
	const term = 5 * time.Second
	elected := make(chan leadership, 2)
	cfg := leaderelection.Config{Decider: leader, LeaderID: "leader", TermLength: term, MaxClockSkew: 100 * time.Millisecond}
	c := start(t, cfg, elected)
	r := await(t, "a leader", elected)
	cfg.Decider, cfg.LeaderID = standby, "standby"
	start(t, cfg, elected)
	extended := func() {
		t.Helper()
		end := r.view.Get()
		Eventually(t, "an extension", func() bool { return r.view.Get().After(end) || r.ctx.Err() != nil })
		if cause := context.Cause(r.ctx); cause != nil {
			t.Fatalf("the leadership ended: %v; the extensions that failed: %v", cause, errors.Join(c.failures()...))
		}
	}
	for _, fault := range []struct {
		name  string
		begin func()
	}{
		{"no answers", proxy.Mute},
		{"requests cut off half way", func() { proxy.Sever(60) }},
		{"answers later than the attempt", func() { proxy.Delay(term/4 + term/8) }},
		{"connections closed and refused", proxy.Refuse},
		{"nothing comes through", proxy.Cut},
	} {
		extended()
		end, before := r.view.Get(), len(c.failures())
		fault.begin()
		// That may be the last extension, which the leader's feed has told of and whose answer is still out.
		Eventually(t, "a failing extension", func() bool { return len(c.failures()) > before })
		err := c.failures()[before]
		if errors.Is(err, leaderelection.ErrLostRace) || errors.Is(err, leaderelection.ErrPermanent) {
			t.Errorf("a fault of the network is told as %v", err)
		}
		proxy.Heal()
		proxy.Delay(0)
		t.Logf("%s: healed with %v left", fault.name, time.Until(end))
		extended()
		if !r.view.ValueInFuture() {
			t.Fatalf("%s (%v): the view has ended", fault.name, err)
		}
		t.Logf("%s: an extension failed (%v), and the leadership goes on", fault.name, err)
	}
}

// Campaign campaigns until the end of the test, and sends on the channel for each leadership.
func Campaign(t testing.TB, d leaderelection.RaceDecider, id string, term, skew time.Duration) (*leaderelection.Campaign, <-chan struct{}) {
	t.Helper()
	elected := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := leaderelection.Config{
		Decider: d, LeaderID: id, TermLength: term, MaxClockSkew: skew, PollInterval: 100 * time.Millisecond,
		OnElected: func(context.Context, *leaderelection.TimeView) { elected <- struct{}{} },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = c.Wait() })
	return c, elected
}

// Abandons has swallow let the connections of a decider die without a word, the idle ones of its pool
// included, and gives up a call on one of them, as campaigns do. It fails the test if no next call is
// answered in time, even if the one that was given up has not returned yet.
func Abandons(t testing.TB, d leaderelection.RaceDecider, swallow func()) {
	t.Helper()
	stores.Nightly(t, "gives calls up by the wall clock")
	Read(t, d)
	Fill(t, d)
	cancel, ended := givesUp(t, d, swallow)
	cancel()
	select {
	case <-ended:
	case <-time.After(abandonAfter / 2): // some clients know no end of a ctx
	}
	next, cancel := context.WithTimeout(t.Context(), nextWithin)
	defer cancel()
	for {
		_, err := d.ReadCurrent(next)
		switch {
		case err == nil:
			return
		case next.Err() != nil:
			t.Fatalf("ReadCurrent after one that was given up: %v; a new connection would have worked", err)
		}
		time.Sleep(abandonAfter / 2) // it failed at once, as a campaign's next read need not
	}
}

// givesUp begins a read whose connection has died, and returns when it is time to give it up.
func givesUp(t testing.TB, d leaderelection.RaceDecider, swallow func()) (context.CancelFunc, <-chan error) {
	t.Helper()
	for range 5 {
		swallow()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := d.ReadCurrent(ctx)
			ended <- err
		}()
		giveUp := time.NewTimer(abandonAfter)
		select {
		case err := <-ended:
			giveUp.Stop()
			if err != nil {
				t.Logf("ReadCurrent has failed by itself: %v", err)
				ended <- err
				return cancel, ended
			}
			cancel() // Fill had begun to make its connection, which came to be after all had died
		case <-giveUp.C:
			return cancel, ended
		}
	}
	t.Fatal("ReadCurrent was answered: its connection has not died")
	return nil, nil
}

// Fill reads the record many times at once, so that the pool of a decider has several connections.
func Fill(t testing.TB, d leaderelection.RaceDecider) {
	t.Helper()
	var readers sync.WaitGroup
	for range 16 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for range 20 {
				if _, err := d.ReadCurrent(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	readers.Wait()
}

// A campaign with a term of 2 s gives calls up after half a second. The next call has time to
// connect, and less than the pings of clients take: 13 s and more.
const abandonAfter, nextWithin = 500 * time.Millisecond, 5 * time.Second

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
