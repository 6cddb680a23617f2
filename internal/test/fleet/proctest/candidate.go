package proctest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// roleEnv makes a test binary a candidate; its value is a role in JSON.
const roleEnv = "LEADERELECTION_PROCTEST"

// role is what a candidate's process is told.
type role struct {
	ID      string
	Address string
	Offset  time.Duration // of its clock
	Group   *groupRole    // not nil: it is a member of a group
}

// Main makes this process a candidate where it was started as one: then it does
// not return. Call it first in TestMain. Open opens the store, within a candidate's
// process. Where what it returns is an io.Closer, it is closed at the end.
func Main[D leaderelection.RaceDecider](open func(context.Context, *url.URL) (D, error)) {
	MainGroup(open, nil)
}

// MainGroup is Main for tests of groups as well: member takes part in one until its ctx
// ends. Package grouptest of internal/test/apart calls it.
func MainGroup[D leaderelection.RaceDecider](open func(context.Context, *url.URL) (D, error), member func(context.Context, Membership) error) {
	env, ok := os.LookupEnv(roleEnv)
	if !ok {
		return
	}
	l := &logger{to: json.NewEncoder(os.Stdout)}
	var r role
	err := json.Unmarshal([]byte(env), &r)
	if err == nil {
		err = r.play(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
			return feedtest.Open(ctx, open, address)
		}, member, l)
	}
	if err != nil {
		l.print(line{Kind: failed, Why: err.Error()})
		os.Exit(1)
	}
	l.print(line{Kind: stopped})
	os.Exit(0)
}

// actEvery is how often a leader acts.
const actEvery = 2 * time.Millisecond

// opener opens the store at an address.
type opener func(ctx context.Context, address string) (leaderelection.RaceDecider, error)

// play campaigns in the election until standard input ends: with the parent's
// death, or by its request.
func (r role) play(open opener, member func(context.Context, Membership) error, l *logger) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if r.Group != nil {
		return r.playGroup(ctx, open, member)
	}
	decider, err := open(ctx, r.Address)
	if err != nil {
		return err
	}
	if c, ok := decider.(io.Closer); ok {
		defer c.Close()
	}
	err = leaderelection.Config{
		Decider: tell(decider, l), LeaderID: r.ID, HostPort: []string{"127.0.0.1:1"},
		TermLength: term, MaxClockSkew: skew,
		Clock:         clocks.NewOffset(nil, r.Offset),
		Logger:        slog.New(slog.NewTextHandler(os.Stderr, nil)).With("candidate", r.ID),
		OnElected:     func(ctx context.Context, view *leaderelection.TimeView) { r.lead(ctx, view, l) },
		LeaderChanged: func(_ context.Context, e leaderelection.RaceEntry) { l.news(e) },
	}.Acquire(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lead acts as long as the view lets it, whatever ctx says: the view is the
// promise under test.
func (r role) lead(ctx context.Context, view *leaderelection.TimeView, l *logger) {
	number := uint64(view.ElectionNumber())
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		<-ctx.Done()
		now := time.Now().UnixNano()
		l.print(line{Kind: out, Number: number, Before: now, After: now, End: r.end(view), Why: context.Cause(ctx).Error()})
	}()
	defer wg.Wait()
	tick := time.NewTicker(actEvery)
	defer tick.Stop()
	for {
		before := time.Now()
		mayAct := view.ValueInFuture()
		after := time.Now()
		if !mayAct {
			return
		}
		l.print(line{Kind: act, Number: number, Before: before.UnixNano(), After: after.UnixNano(), End: r.end(view)})
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
			return // asked to leave: the release waits for this to return
		}
		<-tick.C
	}
}

// end is the view's end as the machine's clock will show it.
func (r role) end(view *leaderelection.TimeView) int64 {
	return view.Get().Add(-r.Offset).UnixNano()
}

// logger prints lines on standard output.
type logger struct {
	mu sync.Mutex
	to *json.Encoder
}

func (l *logger) print(p line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Before == 0 {
		p.Before = time.Now().UnixNano()
		p.After = p.Before
	}
	if err := l.to.Encode(p); err != nil {
		os.Exit(2) // nobody listens any more
	}
}

func (l *logger) news(e leaderelection.RaceEntry) {
	l.print(line{Kind: news, Number: uint64(e.ElectionNumber), Why: e.LeaderID})
}

// teller is a store whose writes are told of, before they are made and after they have worked.
type teller struct {
	leaderelection.RaceDecider
	l      *logger
	writes *atomic.Uint64
}

// tell returns d, whose writes l is told of.
func tell(d leaderelection.RaceDecider, l *logger) leaderelection.RaceDecider {
	t := teller{d, l, new(atomic.Uint64)}
	if feed, ok := d.(leaderelection.ChangeFeed); ok {
		return struct {
			teller
			leaderelection.ChangeFeed
		}{t, feed}
	}
	return t
}

func (t teller) String() string { return fmt.Sprint(t.RaceDecider) }

// WriteEntry tells of the write. A process that is killed meanwhile leaves open whether it landed.
func (t teller) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	id := t.writes.Add(1)
	t.l.print(line{Kind: writing, Number: uint64(entry.ElectionNumber), Write: id, Entry: entry.Clone()})
	token, err := t.RaceDecider.WriteEntry(ctx, entry)
	if err == nil {
		t.l.print(line{Kind: landed, Number: uint64(entry.ElectionNumber), Write: id})
	}
	return token, err
}

// Blind overwrites whatever is there: every candidate wins. It is for tests of these tests.
type Blind struct{ leaderelection.RaceDecider }

// WriteEntry writes, and loses no race.
func (b Blind) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if !clocks.System().SleepFor(ctx, 300*time.Millisecond) { // others read meanwhile
		return nil, ctx.Err()
	}
	now, err := b.ReadCurrent(ctx)
	if err != nil {
		return nil, err
	}
	e := entry.Clone()
	e.Token = now.Token
	return b.RaceDecider.WriteEntry(ctx, e)
}
