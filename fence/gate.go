package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/c8e606e4/leaderelection"
)

// Header is the HTTP header that carries a token.
const Header = "Fencing-Token"

// What a gate refuses to send. Test with errors.Is.
var (
	// ErrViewEnded: the leadership that the request belongs to is over.
	ErrViewEnded = errors.New("fence: not sent: this process does not lead any more")
	// ErrNoGate: the request's ctx belongs to no leadership.
	ErrNoGate = errors.New("fence: not sent: the request's ctx has no Gate: use fence.NewContext")
)

// Gate is the right to write of one leadership. Do not take its View from a Campaign
// when something is sent, but once when the leadership begins: work that is left over
// from an earlier leadership must not pass under the name of a later one.
type Gate struct {
	// View is the leadership's, as OnElected gets it.
	View *leaderelection.TimeView
	// Election names the election, as for the resource's Guard.
	Election string
}

// Token returns the leadership's token, or ErrViewEnded once the view has ended, or
// ErrNoGate where there is no View.
func (g Gate) Token() (Token, error) {
	switch {
	case g.View == nil:
		return Token{}, ErrNoGate
	case !g.View.ValueInFuture():
		return Token{}, fmt.Errorf("%w (election %d of %q)", ErrViewEnded, g.View.ElectionNumber(), g.Election)
	case g.View.ElectionNumber() == leaderelection.NoElections:
		return Token{}, fmt.Errorf("%w: the Gate's View belongs to no leadership", ErrNoToken)
	}
	return Token{Election: g.Election, Number: g.View.ElectionNumber()}, nil
}

type (
	gateKey  struct{}
	tokenKey struct{}
)

// NewContext returns a ctx whose requests belong to a leadership.
func NewContext(ctx context.Context, g Gate) context.Context {
	return context.WithValue(ctx, gateKey{}, g)
}

// GateOf returns what NewContext put into ctx, or a Gate that lets nothing pass.
func GateOf(ctx context.Context) Gate {
	g, _ := ctx.Value(gateKey{}).(Gate)
	return g
}

// WithToken returns a ctx for the handling of a request that came with t. The
// middleware and interceptors of this library do that.
func WithToken(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, t)
}

// TokenOf returns the token that a request came with, for the condition of what
// is written on its behalf.
func TokenOf(ctx context.Context) (Token, bool) {
	t, ok := ctx.Value(tokenKey{}).(Token)
	return t, ok
}
