package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The whole of it, with shorter terms, for an output that is no terminal.
func TestShards(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	var out bytes.Buffer
	if err := show(t.Context(), &out, time.Second, 12); err != nil {
		t.Error(err)
	}
	for _, row := range []string{
		`three members join +all owned after +\d+\.\d s`,
		`ben is killed.+ all owned after +\d+\.\d s`,
		`the coordinator is killed +all owned after +\d+\.\d s`,
		`12 shards, \d\d+ acts, \d\d+ changes of owner`,
		`(?m)^  0 overlaps$`,
	} {
		if !regexp.MustCompile(row).Match(out.Bytes()) {
			t.Errorf("it does not print %q", row)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("it prints escape sequences, though this is no terminal")
	}
	if t.Failed() {
		t.Logf("it printed:\n%s", out.String())
	}
}

// It ends at once when it is interrupted.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	cancel(stop)
	if err := show(ctx, new(bytes.Buffer), time.Second, 4); !errors.Is(err, stop) {
		t.Errorf("show: %v", err)
	}
}

// An act by an older token than one seen before is counted.
func TestLedger(t *testing.T) {
	g := newGroup(time.Second, 1)
	defer g.end()
	if _, err := g.join("ann"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !g.settled() {
		select {
		case <-ctx.Done():
			t.Fatal("ann does not own the shard")
		case <-time.After(10 * time.Millisecond):
		}
	}
	g.mu.Lock()
	g.ledger["0"] = &entry{owner: "ben", token: math.MaxInt64}
	g.mu.Unlock()
	for {
		if _, late, _ := g.counted(); late > 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("an act by an older token is not counted")
		case <-time.After(10 * time.Millisecond):
		}
	}
}
