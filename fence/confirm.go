package fence

import (
	"context"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
)

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
