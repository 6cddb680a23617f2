package fence

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/c8e606e4/leaderelection"
)

// Guard admits a token only if it is not smaller than the greatest it has seen.
// The zero Guard is for the election named "". All methods may be called by any
// number of goroutines at once.
type Guard struct {
	// Confirm, if it is set, is asked before a token greater than all before is
	// admitted: about once for each leadership. An error keeps the token out, and is
	// what Admit returns. [ConfirmBy] asks the election itself. Without it, whoever
	// reaches the guard can shut every leader out with a token that is great enough:
	// then only authenticated writers may reach it. Set it before the first use.
	Confirm func(ctx context.Context, t Token) error

	election string
	greatest atomic.Uint64
	acts     sync.RWMutex // held for writing while greatest grows, for reading during Do
}

var (
	_ Checker = (*Guard)(nil)
	_ Peeker  = (*Guard)(nil)
)

// NewGuard returns a Guard for an election that has seen the number seen: what
// was remembered from before a restart, or zero.
func NewGuard(election string, seen leaderelection.ElectionNumber) *Guard {
	g := &Guard{election: election}
	g.greatest.Store(uint64(seen))
	return g
}

// Greatest is the greatest number seen.
func (g *Guard) Greatest() leaderelection.ElectionNumber {
	return leaderelection.ElectionNumber(g.greatest.Load())
}

// Admit returns nil where t is not smaller than the greatest token seen, and
// remembers it. Otherwise it returns a *StaleError, ErrNoToken, or an error that
// wraps ErrOtherElection. A token seen before costs a few nanoseconds; the first
// of a leadership waits for Confirm, and for the acts of earlier ones that are inside
// Do.
func (g *Guard) Admit(t Token) error { return g.Check(context.Background(), t) }

// Check is Admit as a Checker. Confirm gets its ctx.
func (g *Guard) Check(ctx context.Context, t Token) error {
	if uint64(t.Number) == g.greatest.Load() && t.Election == g.election && t.Number != leaderelection.NoElections {
		return nil
	}
	return g.admit(ctx, t)
}

// Peek returns what Check would, and remembers nothing: it does not ask Confirm
// either.
func (g *Guard) Peek(_ context.Context, t Token) error {
	if err := t.Check(g.election); err != nil {
		return err
	}
	return g.stale(t)
}

// admit is Check for what happens once a leadership, or not at all.
func (g *Guard) admit(ctx context.Context, t Token) error {
	if err := g.Peek(ctx, t); err != nil {
		return err
	}
	if g.Confirm != nil && uint64(t.Number) > g.greatest.Load() {
		if err := g.Confirm(ctx, t); err != nil {
			return err
		}
	}
	g.acts.Lock()
	defer g.acts.Unlock()
	if err := g.stale(t); err != nil {
		return err
	}
	g.greatest.Store(uint64(t.Number))
	return nil
}

func (g *Guard) stale(t Token) error {
	if n := g.greatest.Load(); uint64(t.Number) < n {
		return &StaleError{Token: t, Greatest: leaderelection.ElectionNumber(n)}
	}
	return nil
}

// Do calls act if t is admitted, and returns its error. No greater token is
// admitted until act has returned: so once a new leader's first act has been
// admitted, none of an earlier leader's is still going on. Acts of the same leadership
// run side by side. An act that does not return keeps the next leader out: bound
// it in time.
func (g *Guard) Do(t Token, act func() error) error {
	for {
		if err := g.Admit(t); err != nil {
			return err
		}
		g.acts.RLock()
		if uint64(t.Number) == g.greatest.Load() {
			defer g.acts.RUnlock()
			return act()
		}
		g.acts.RUnlock()
	}
}

// Checker decides about tokens: a Guard, or one that remembers the greatest token
// in a store. Its errors are those of Guard.Admit, or others where it cannot
// decide.
type Checker interface {
	Check(ctx context.Context, t Token) error
}

// Peeker is a Checker that can also judge a token without remembering it: for
// requests that only read. What reads must not be able to shut a leader out.
type Peeker interface {
	Checker
	Peek(ctx context.Context, t Token) error
}
