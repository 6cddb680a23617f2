//go:build go1.25

package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// waits is a store that does not answer, and says when it is given up what it was waiting for.
type waits struct{ le.RaceDecider }

func (waits) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("somebody holds the lock: %w", ctx.Err())
}

// A call that was given up may say what it waited for. The log has that, and so has the error of a
// campaign or an observer that then ends and has learned nothing.
func TestGivenUpCallSaysWhatItWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		d := waits{memory.NewDecider()}
		for what, run := range map[string]func(context.Context) error{
			"campaign": le.Config{Decider: d, LeaderID: "a", Logger: logger, OnElected: func(context.Context, *le.TimeView) {}}.Acquire,
			"observer": func(ctx context.Context) error {
				return le.WatchConfig{Decider: d, Logger: logger}.Watch(ctx, func(context.Context, le.RaceEntry) {})
			},
		} {
			log.Reset()
			ctx, cancel := context.WithTimeout(t.Context(), le.DefaultTermLength/3) // one call has been given up
			err := run(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within") || !strings.Contains(err.Error(), "holds the lock") {
				t.Errorf("%s: %v", what, err)
			}
			if !strings.Contains(log.String(), "holds the lock") {
				t.Errorf("%s: the log lacks it:\n%s", what, log.String())
			}
		}
	})
}
