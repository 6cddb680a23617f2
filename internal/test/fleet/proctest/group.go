package proctest

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// GroupOptions says where the store of a group of package shard is, and what befalls its
// members. Only Address is required.
type GroupOptions struct {
	// Address is as in Options; nameMark in it, "{name}", takes the place of each record's
	// name.
	Address string
	// Upstream and Env are as in Options.
	Upstream string
	Env      []string
	// Members and Shards are how many there are. Zero: 8 and 200.
	Members, Shards int
	// Term, Skew and PollInterval are the members'. Zero: 3 s, 200 ms, a quarter of Term.
	Term, Skew, PollInterval time.Duration
	// For is how long things go wrong before all is calm. Zero: 25 s.
	For time.Duration
	// Patience is for the calm. Zero: 3 min.
	Patience time.Duration
}

// nameMark stands for a record's name in a group's Address.
const nameMark = "{name}"

// groupRole is what a member's process is told besides its role.
type groupRole struct {
	Shards int
	Ledger string // the file that it writes down its acts in
}

// Membership says how a member's process takes part. Package grouptest of internal/test/apart makes
// a shard.Config of it: package shard is a module of its own, which this one does not require.
type Membership struct {
	ID                       string
	Shards                   int
	Store                    func(name string) (leaderelection.RaceDecider, error)
	Term, Skew, PollInterval time.Duration
	Clock                    clocks.Clock
	Logger                   *slog.Logger
	// Begin has the process act on a shard that it owns, as long as its view lets it.
	Begin func(Owned)
}

// Owned is a *shard.Owned.
type Owned interface {
	Name() string
	ElectionNumber() leaderelection.ElectionNumber
	ValueInFuture() bool
}

// playGroup takes part in the group until ctx ends.
func (r role) playGroup(ctx context.Context, open opener, member func(context.Context, Membership) error) error {
	acts, err := newActs(r.Group.Ledger)
	if err != nil {
		return err
	}
	defer acts.end()
	var mu sync.Mutex
	var opened []leaderelection.RaceDecider
	defer func() {
		for _, d := range opened {
			if c, ok := d.(io.Closer); ok {
				_ = c.Close()
			}
		}
	}()
	return member(ctx, Membership{
		ID: r.ID, Shards: r.Group.Shards, Term: r.Term, Skew: r.Skew, PollInterval: r.PollIn,
		Clock:  clocks.NewOffset(nil, r.Offset),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)).With("member", r.ID),
		Begin:  acts.begin,
		Store: func(name string) (leaderelection.RaceDecider, error) {
			// It outlives ctx: the seat is released when that has ended.
			d, err := open(context.WithoutCancel(ctx), strings.ReplaceAll(r.Address, nameMark, name))
			if err == nil {
				mu.Lock()
				opened = append(opened, d)
				mu.Unlock()
			}
			return d, err
		},
	})
}
