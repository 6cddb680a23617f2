package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// Header is the HTTP header that carries a token.
const Header = "Fencing-Token"

// ErrNoGate means that a request was not sent, because its ctx belongs to no leadership.
var ErrNoGate = errors.New("fence: not sent: the request's ctx has no Gate: use fence.WithGate")

// Gate is the right to write of one leadership. Make it once, when the leadership begins, from
// the view that OnElected gets. Do not take the View from a Campaign when something is sent:
// work left over from an earlier leadership must not pass with the token of a later one.
type Gate struct {
	// View is the leadership's view, as OnElected gets it.
	View View
	// Election names the election, as for the resource's Guard. A Gate without it makes no token.
	Election string
}

// View says until when a leadership lasts, and which it is: a *leaderelection.TimeView. Its methods
// may be called by several goroutines at once. The owner of a shard gets its Gate from shard.Owned.
type View interface {
	ValueInFuture() bool
	Get() time.Time
	Clock() clocks.Clock
	ElectionNumber() leaderelection.ElectionNumber
}

// Token returns the leadership's token. Once the view has ended it returns an error that wraps
// leaderelection.ErrNotLeading. If the Gate has no View, it returns ErrNoGate. If it has no Election,
// the error wraps ErrMalformed.
func (g Gate) Token() (Token, error) {
	if g.View == nil {
		return Token{}, ErrNoGate
	}
	t := Token{Election: g.Election, Number: g.View.ElectionNumber()}
	if !g.View.ValueInFuture() {
		return Token{}, fmt.Errorf("fence: not sent: %w (token %d of %q)", leaderelection.ErrNotLeading, t.Number, t.Election)
	}
	if err := t.Check(t.Election); err != nil {
		return Token{}, fmt.Errorf("fence: not sent: the Gate's View and Election make no token: %w", err)
	}
	return t, nil
}

type (
	gateKey  struct{}
	tokenKey struct{}
)

// WithGate returns a ctx whose requests belong to the leadership of g. A [Transport] sends them
// with its token.
func WithGate(ctx context.Context, g Gate) context.Context {
	return context.WithValue(ctx, gateKey{}, g)
}

// GateFrom returns the Gate that WithGate put into ctx, or a Gate that lets nothing pass.
func GateFrom(ctx context.Context) Gate {
	g, _ := ctx.Value(gateKey{}).(Gate)
	return g
}

// WithToken returns a ctx for the handling of a request that came with t. The middleware and the
// interceptors of this library call it.
func WithToken(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, t)
}

// TokenFrom returns the token that a request came with. Use it as the condition of the writes that
// a handler makes for that request.
func TokenFrom(ctx context.Context) (Token, bool) {
	t, ok := ctx.Value(tokenKey{}).(Token)
	return t, ok
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
