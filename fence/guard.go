package fence

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Guard admits a token only if it is not smaller than the greatest it has seen. Put it in front of
// a resource that lives in this process. The zero Guard admits nothing: make it by NewGuard. All
// methods may be called by any number of goroutines at once.
type Guard struct {
	// Confirm is called before the guard admits a token greater than all before: about once for
	// each leadership. If it returns an error, the guard refuses the token, and Check returns
	// that error. [ConfirmBy] asks the election itself. Optional, but without it anybody who
	// reaches the guard can shut out every leader, with a token that is great enough. Then only
	// authenticated writers may reach the guard. Set it before the first use.
	Confirm func(ctx context.Context, t Token) error

	election string
	greatest atomic.Uint64 // grows under mu, while there are no acts

	mu      sync.Mutex
	acts    int           // that are under way inside Do, all of the greatest token
	waiting int           // greater tokens that wait for the acts to end: no other act begins
	changed chan struct{} // closed when one of these has changed; nil: nobody waits
}

var _ Checker = (*Guard)(nil)

// NewGuard returns a Guard for an election. Its greatest number is seen: the number remembered
// from before a restart, or zero.
func NewGuard(election string, seen leaderelection.ElectionNumber) *Guard {
	g := &Guard{election: election}
	g.greatest.Store(uint64(seen))
	return g
}

// Greatest returns the greatest number seen. Use it to remember the number for a restart.
func (g *Guard) Greatest() leaderelection.ElectionNumber {
	return leaderelection.ElectionNumber(g.greatest.Load())
}

// Check returns nil if t is not smaller than the greatest token seen, and remembers t. Otherwise it
// returns a *StaleError, the error of Token.Check, or that of Confirm.
//
// For a token seen before this takes a few nanoseconds. The first token of a leadership waits
// for Confirm, which gets ctx, and for acts of earlier leaderships inside Do, until ctx ends.
func (g *Guard) Check(ctx context.Context, t Token) error {
	if err := t.Check(g.election); err != nil {
		return err
	}
	if uint64(t.Number) == g.greatest.Load() {
		return nil
	}
	return g.admit(ctx, t)
}

// Peek judges t as Check does, but remembers nothing and does not call Confirm. Use it for
// requests that only read.
func (g *Guard) Peek(_ context.Context, t Token) error {
	if err := t.Check(g.election); err != nil {
		return err
	}
	return g.stale(t)
}

// admit is Check for all but the greatest token: it runs about once in a leadership.
func (g *Guard) admit(ctx context.Context, t Token) error {
	if err := g.stale(t); err != nil {
		return err
	}
	if g.Confirm != nil && uint64(t.Number) > g.greatest.Load() {
		if err := g.Confirm(ctx, t); err != nil {
			return err
		}
	}
	return g.raise(ctx, t)
}

// raise remembers t when no act of a smaller token is under way.
func (g *Guard) raise(ctx context.Context, t Token) error {
	if inside(ctx, g) {
		if uint64(t.Number) > g.greatest.Load() {
			return fmt.Errorf("fence: %v inside an act of a smaller token, which it would wait for", t)
		}
		return g.stale(t)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting++
	defer func() { g.waiting--; g.wake() }()
	for {
		if err := g.stale(t); err != nil {
			return err
		}
		if g.acts == 0 || uint64(t.Number) == g.greatest.Load() {
			g.greatest.Store(uint64(t.Number))
			return nil
		}
		if err := g.wait(ctx, t); err != nil {
			return err
		}
	}
}

// wait returns when something has changed, or ctx has ended. The caller holds mu; wait gives it up
// meanwhile.
func (g *Guard) wait(ctx context.Context, t Token) error {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	changed := g.changed
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("fence: %v has waited for acts of other leaderships to end: %w", t, context.Cause(ctx))
	}
}

// wake makes all that wait look again. The caller holds mu.
func (g *Guard) wake() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

func (g *Guard) stale(t Token) error {
	if n := g.greatest.Load(); uint64(t.Number) < n {
		return &StaleError{Token: t, Greatest: leaderelection.ElectionNumber(n)}
	}
	return nil
}

// Do calls act if t is admitted, and returns its error. Use it if no act of an earlier leader may
// still run when a new leader acts: no greater token is admitted until act has returned. Acts of
// the same leadership run side by side. An act that does not return keeps the next leader out,
// so bound it in time. Do gives up if ctx ends before act is called.
//
// With the ctx that it is given, act may call Do and Check of the same Guard with the same
// token, any number of times.
func (g *Guard) Do(ctx context.Context, t Token, act func(ctx context.Context) error) error {
	if err := g.begin(ctx, t); err != nil {
		return err
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.acts--
		g.wake()
	}()
	return act(context.WithValue(ctx, actKey{g}, true))
}

// begin returns when an act of t may begin, and counts it.
func (g *Guard) begin(ctx context.Context, t Token) error {
	for {
		if err := g.Check(ctx, t); err != nil {
			return err
		}
		g.mu.Lock()
		switch {
		case uint64(t.Number) != g.greatest.Load(): // a greater one has come meanwhile
			g.mu.Unlock()
			continue
		case g.waiting == 0 || inside(ctx, g): // those that wait must wait for the outer act in any case
			g.acts++
			g.mu.Unlock()
			return nil
		}
		err := g.wait(ctx, t)
		g.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// actKey marks the ctx of a Guard's acts.
type actKey struct{ g *Guard }

// inside reports whether ctx belongs to an act of g.
func inside(ctx context.Context, g *Guard) bool { return ctx.Value(actKey{g}) != nil }

// Checker decides whether a token is admitted. A [Guard] is one. Implement it to remember the
// greatest token in a store. Its errors are those of Guard.Check, or others if it cannot decide.
type Checker interface {
	// Check judges t. If it admits t, it remembers t, and refuses smaller tokens from then on.
	Check(ctx context.Context, t Token) error
	// Peek judges t as Check does but remembers nothing. It is for requests that only read,
	// since a read must not be able to shut out a leader.
	Peek(ctx context.Context, t Token) error
}

// How often and for how long ConfirmBy reads.
const (
	confirmEvery   = time.Second
	confirmTimeout = 5 * time.Second
)

// ConfirmBy returns a function for [Guard.Confirm] that asks the election. It confirms a token if
// the record has reached the token's number. Use it if the resource can read the record. The
// function may be called concurrently. Without a decider it confirms nothing.
//
// It reads at most once a second, so that forged tokens do not load the store. So for up to a
// second a new leader's first request may be refused: send it again.
//
// The record does not prove that the request comes from the leader, only that there has been
// such a leadership. An outsider can use a token as great as the leader's, and no greater.
func ConfirmBy(d leaderelection.RaceDecider) func(ctx context.Context, t Token) error {
	if d == nil {
		return func(_ context.Context, t Token) error {
			return fmt.Errorf("fence: %v is not confirmed: ConfirmBy has no decider", t)
		}
	}
	c := &confirmer{decider: d, turn: make(chan struct{}, 1)}
	return c.confirm
}

// confirmer remembers how far the election has come.
type confirmer struct {
	decider leaderelection.RaceDecider
	turn    chan struct{} // held by the caller that reads
	read    time.Time     // when it was read last
	seen    leaderelection.ElectionNumber
	err     error
}

func (c *confirmer) confirm(ctx context.Context, t Token) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("fence: confirming %v: %w", t, context.Cause(ctx))
	}
	answer := make(chan error, 1)
	go func() { // what it reads serves all requests, so it outlives this one
		defer func() { <-c.turn }()
		answer <- c.judge(t)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("fence: confirming %v: %w", t, context.Cause(ctx))
	}
}

// judge is confirm for the caller that has the turn.
func (c *confirmer) judge(t Token) error {
	if t.Number <= c.seen {
		return nil
	}
	if c.read.IsZero() || time.Since(c.read) >= confirmEvery {
		c.look()
	}
	switch {
	case t.Number <= c.seen:
		return nil
	case c.err != nil:
		return fmt.Errorf("fence: confirming %v by the election's record: %w", t, c.err)
	}
	return fmt.Errorf("fence: %v is not confirmed: the election's record has come to token %d", t, c.seen)
}

// look reads the record. It does not use the ctx of one request, since what it reads serves all
// requests.
func (c *confirmer) look() {
	ctx, cancel := context.WithTimeout(context.Background(), confirmTimeout)
	defer cancel()
	e, err := c.decider.ReadCurrent(ctx)
	c.read, c.err = time.Now(), err
	if err == nil && e != nil {
		c.seen = max(c.seen, e.ElectionNumber)
	}
}
