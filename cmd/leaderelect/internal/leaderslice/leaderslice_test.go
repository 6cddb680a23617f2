package leaderslice_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/leaderslice"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// slice is imagined.
type slice struct {
	mu     sync.Mutex
	leads  []string
	number leaderelection.ElectionNumber
	asked  int
	fault  error
}

func (s *slice) Lead(ctx context.Context, number leaderelection.ElectionNumber, hostPorts []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.fault != nil || ctx.Err() != nil {
		return errors.Join(s.fault, ctx.Err())
	}
	s.leads, s.number = hostPorts, number
	return nil
}

// set sets whether it leads, and what all requests fail with.
func (s *slice) set(fault error, leads ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads, s.fault, s.asked = leads, fault, 0
}

func (s *slice) is(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.leads, want) {
		t.Errorf("it leads to %q, want %q", s.leads, want)
	}
}

const here = "10.0.0.1:8080"

// The slice leads to the leader, whatever has become of it meanwhile, until the leader leaves.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slice{}
		s.set(nil, "of one that crashed")
		var log strings.Builder
		begun, left := 0, "nothing"
		cfg := leaderelection.Config{Decider: memory.New(nil), LeaderID: "a", HostPort: []string{here},
			OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { begun++; <-ctx.Done() },
			OnOusting: func(context.Context) { left = strings.Join(s.leads, " ") }}
		leaderslice.Follow(&cfg, s, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.is(t, here)
		if n := c.View().ElectionNumber(); s.number != n || n == 0 {
			t.Errorf("written with token %d, in %d", s.number, n)
		}
		s.set(nil, "mistaken")
		time.Sleep(10 * time.Second)
		s.is(t, here)
		s.set(errors.New("no API server"))
		time.Sleep(time.Hour)
		if synctest.Wait(); s.asked > 365 { // every 10 s, and some in the beginning
			t.Errorf("%d requests in an hour", s.asked)
		}
		if n := strings.Count(log.String(), "no API server"); n != 1 {
			t.Errorf("one fault was logged %d times", n)
		}
		s.set(nil)
		time.Sleep(10 * time.Second)
		s.is(t, here)
		stop()
		_ = c.Wait()
		s.is(t)
		if begun != 1 || left != "" {
			t.Errorf("the callbacks beside it: elected %d times; ousted when it led to %q", begun, left)
		}
	})
}

// What has failed in the beginning is tried again within a second.
func TestFollowSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slice{}
		s.set(errors.New("no API server"))
		cfg := leaderelection.Config{Decider: memory.New(nil), LeaderID: "a", HostPort: []string{here}}
		leaderslice.Follow(&cfg, s, slog.New(slog.NewTextHandler(io.Discard, nil)))
		ctx, stop := context.WithCancel(t.Context())
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.set(nil)
		time.Sleep(time.Second)
		s.is(t, here)
		stop()
		_ = c.Wait()
	})
}

// A slice that cannot be written is no reason to keep the lease.
func TestFollowLeavesInAnyCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slice{}
		d := memory.New(nil)
		cfg := leaderelection.Config{Decider: d, LeaderID: "a", HostPort: []string{here}}
		var log strings.Builder
		leaderslice.Follow(&cfg, s, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.is(t, here)
		s.set(errors.New("no API server"), here)
		stop()
		_ = c.Wait()
		if e, err := d.ReadCurrent(t.Context()); err != nil || e.LeaderID != "" {
			t.Errorf("%+v, %v", e, err)
		}
		if !strings.Contains(log.String(), "no API server") {
			t.Errorf("it is logged that\n%s", log.String())
		}
	})
}
