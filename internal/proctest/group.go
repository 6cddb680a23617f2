package proctest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/shard"
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
	// For is how long things go wrong before all is calm. Zero: 25 s, or what the
	// environment says in PROCTEST_GROUP_FOR, as in 10m.
	For time.Duration

	patience time.Duration // for the calm; zero: 3 min
}

// nameMark stands for a record's name in a group's Address.
const nameMark = "{name}"

// groupRole is what a member's process is told besides its role.
type groupRole struct {
	Shards int
	Ledger string // the file that it writes down its acts in
}

// playGroup takes part in the group until ctx ends.
func (r role) playGroup(ctx context.Context, open Open) error {
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
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("member", r.ID)
	member, err := shard.Config{
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
		MemberID: r.ID, Shards: shard.Numbered(r.Group.Shards), HostPort: []string{"127.0.0.1:1"},
		TermLength: r.Term, MaxClockSkew: r.Skew, PollInterval: r.PollIn, DrainTimeout: r.Term / 2,
		Clock: clocks.NewOffset(nil, r.Offset), Logger: logger,
		OnOwned: func(ctx context.Context, o *shard.Owned) {
			acts.begin(o)
			<-ctx.Done()
			linger := time.NewTimer(rand.N(20 * time.Millisecond))
			defer linger.Stop()
			<-linger.C
		},
	}.Start(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return member.Leave(context.WithoutCancel(ctx))
	case <-member.Done():
		return fmt.Errorf("the member has ended by itself: %w", member.Wait())
	}
}
