// Package grouptest is package proctest for groups of package shard: a test's program that
// calls Main can call proctest.RunGroup.
package grouptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/shard"
)

// Main makes this process a member if it was started as one. Otherwise it runs the tests.
// Use it as TestMain.
func Main[D leaderelection.RaceDecider](m *testing.M, open func(context.Context, *url.URL) (D, error)) {
	proctest.MainGroup(open, Member)
	goleak.VerifyTestMain(m)
}

// Member takes part in a group until ctx ends. It is for proctest.MainGroup.
func Member(ctx context.Context, m proctest.Membership) error {
	member, err := shard.Config{
		Store: m.Store, MemberID: m.ID, Shards: shard.Numbered(m.Shards), HostPort: []string{"127.0.0.1:1"},
		TermLength: m.Term, MaxClockSkew: m.Skew, PollInterval: m.PollInterval, DrainTimeout: m.Term / 2,
		Clock: m.Clock, Logger: m.Logger,
		OnOwned: func(ctx context.Context, o *shard.Owned) error {
			m.Begin(o)
			<-ctx.Done()
			clocks.System().SleepFor(context.Background(), rand.N(20*time.Millisecond)) // it lingers
			return nil
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
