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
	// Shard takes the place of View for a shard of package shard. See ForShard.
	Shard Shard
}

// Shard is a shard that this process owns: a *shard.Owned.
type Shard interface {
	Name() string
	Token() leaderelection.ElectionNumber
	ValueInFuture() bool
	Get() time.Time
	Clock() clocks.Clock
}

// ForShard returns the right to write of a shard's owner, in the group of that name. Each
// shard has tokens of its own, so it is fenced under a name of its own, ShardName's: the
// resource has a Guard, or a row, for each.
func ForShard(group string, s Shard) Gate {
	return Gate{Election: ShardName(group, s.Name()), Shard: s}
}

// ShardName is the name that the shard of a group is fenced by: the group's, a slash, and the
// shard's.
func ShardName(group, shard string) string { return group + "/" + shard }

// Ends returns what says until when the Gate is open, nil if it never was: for whoever
// carries tokens by another protocol.
func (g Gate) Ends() interface {
	ValueInFuture() bool
	Get() time.Time
	Clock() clocks.Clock
} {
	switch {
	case g.Shard != nil:
		return g.Shard
	case g.View != nil:
		return g.View
	}
	return nil
}

// Token returns the leadership's token, or ErrViewEnded once the view has ended, or
// ErrNoGate if there is neither View nor Shard.
func (g Gate) Token() (Token, error) {
	view := g.Ends()
	if view == nil {
		return Token{}, ErrNoGate
	}
	var number leaderelection.ElectionNumber
	if g.Shard != nil {
		number = g.Shard.Token()
	} else {
		number = g.View.ElectionNumber()
	}
	switch {
	case !view.ValueInFuture():
		return Token{}, fmt.Errorf("%w (election %d of %q)", ErrViewEnded, number, g.Election)
	case number == leaderelection.NoElections:
		return Token{}, fmt.Errorf("%w: the Gate's View belongs to no leadership", ErrNoToken)
	}
	return Token{Election: g.Election, Number: number}, nil
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
