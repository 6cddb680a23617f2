package podlabel_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/podlabel"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// pods are imagined.
type pods struct {
	mu      sync.Mutex
	labels  map[string]bool
	changed []string
	fault   error
}

func (p *pods) Labelled(context.Context) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.labels)), p.fault
}

func (p *pods) Label(ctx context.Context, pod string, give bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil || ctx.Err() != nil {
		return errors.Join(p.fault, ctx.Err())
	}
	if delete(p.labels, pod); give {
		p.labels[pod] = true
	}
	p.changed = append(p.changed, pod)
	return nil
}

// set sets who has the label, and what all requests fail with.
func (p *pods) set(fault error, labelled ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.labels, p.fault, p.changed = map[string]bool{}, fault, nil
	for _, pod := range labelled {
		p.labels[pod] = true
	}
}

func (p *pods) have(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := slices.Sorted(maps.Keys(p.labels)); !slices.Equal(got, want) {
		t.Errorf("labelled are %q, want %q", got, want)
	}
}

// The label is with the leader, whatever has become of it meanwhile, until the leader leaves.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pods{}
		p.set(nil, "crashed")
		log := slog.New(slog.NewTextHandler(io.Discard, nil))
		begun, left := 0, ""
		cfg := leaderelection.Config{Decider: memory.New(nil), LeaderID: "a",
			OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { begun++; <-ctx.Done() },
			OnOusting: func(context.Context) { left = strings.Join(p.changed, " ") }}
		podlabel.Follow(&cfg, p, "a", log)
		ctx, stop := context.WithCancel(t.Context())
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		p.have(t, "a")
		if !slices.Equal(p.changed, []string{"a", "crashed"}) {
			t.Errorf("%q were labelled, in this order: there was a time without a leader", p.changed)
		}
		p.set(nil, "mistaken")
		time.Sleep(10 * time.Second)
		p.have(t, "a")
		p.set(nil, "a")
		time.Sleep(20 * time.Second)
		if p.have(t, "a"); len(p.changed) > 0 {
			t.Errorf("where nothing was amiss it has labelled %q", p.changed)
		}
		p.set(errors.New("no API server"))
		time.Sleep(10 * time.Second)
		p.set(nil)
		time.Sleep(time.Second)
		p.have(t, "a")
		stop()
		_ = c.Wait()
		p.have(t)
		if begun != 1 || left != "a a" {
			t.Errorf("the callbacks beside it: elected %d times; ousted when %q had been labelled", begun, left)
		}
	})
}

// A label that cannot be taken away is no reason to keep the lease.
func TestFollowLeavesInAnyCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pods{}
		p.set(nil)
		d := memory.New(nil)
		cfg := leaderelection.Config{Decider: d, LeaderID: "a"}
		var log strings.Builder
		podlabel.Follow(&cfg, p, "a", slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		p.have(t, "a")
		p.set(errors.New("no API server"), "a")
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
