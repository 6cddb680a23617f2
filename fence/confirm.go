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

// ConfirmBy returns a function for [Guard.Confirm] that asks the election: a token is
// genuine if the record has reached its number. It reads at most once a second, so
// that forged tokens do not become a load on the store; a new leader's first request
// may be refused for as long, and is to be sent again. It may be called concurrently.
//
// The record does not say that the request comes from the leader, only that there has
// been such a leadership: an outsider can be as new as the leader, and not newer.
func ConfirmBy(d leaderelection.RaceDecider) func(ctx context.Context, t Token) error {
	c := &confirmer{decider: d, turn: make(chan struct{}, 1)}
	return c.confirm
}

// confirmer remembers how far the election has come.
type confirmer struct {
	decider leaderelection.RaceDecider
	turn    chan struct{} // held by who reads
	read    time.Time     // when it was read last
	seen    leaderelection.ElectionNumber
	err     error
}

func (c *confirmer) confirm(ctx context.Context, t Token) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return fmt.Errorf("fence: confirming %v: %w", t, context.Cause(ctx))
	}
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
	return fmt.Errorf("fence: %v is not confirmed: the election's record has come to number %d", t, c.seen)
}

// look reads the record. It is not the ctx of one request that decides how long:
// what it finds is for all.
func (c *confirmer) look() {
	ctx, cancel := context.WithTimeout(context.Background(), confirmTimeout)
	defer cancel()
	e, err := c.decider.ReadCurrent(ctx)
	c.read, c.err = time.Now(), err
	if err == nil && e != nil {
		c.seen = max(c.seen, e.ElectionNumber)
	}
}
