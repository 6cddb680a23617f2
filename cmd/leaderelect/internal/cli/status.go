package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// exitUnled is what status exits with where nobody leads, or not who should.
const exitUnled = 1

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	var checkID string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "status [URL]",
		Short: "Say who leads",
		Long: `Read the record once, and say who leads, since about when, with which election number
(the fencing token), how much of the term is left, and at which addresses.

Exit codes: 0 somebody leads; 1 nobody does, or with --check-id somebody else; 2 error.

The answer is as of now: for what only a leader may do, a moment later it may be
wrong. That is what the leader's own view, and fencing, are for.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			url, _, err := a.url(args)
			if err != nil {
				return err
			}
			if timeout <= 0 {
				return usage("--timeout is %v, must be positive", timeout)
			}
			a.begun(exitUsage) // errors are 2 here, too
			return a.status(c.Context(), url, asJSON, checkID, timeout)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&checkID, "check-id", "", "exit with 0 only if this candidate leads: for probes")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the store")
	return c
}

func (a *app) status(ctx context.Context, url string, asJSON bool, checkID string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within --timeout %v", timeout))
	defer cancel()
	d, err := store.Open(ctx, url, timeout)
	if err != nil {
		return err
	}
	defer store.Close(d)
	e, err := d.ReadCurrent(ctx)
	if err != nil {
		return err
	}
	s := state.Of(e, time.Now(), a.common.skew)
	if asJSON {
		err = json.NewEncoder(a.out).Encode(s)
	} else {
		_, err = fmt.Fprint(a.out, s.Text())
	}
	switch {
	case err != nil:
		return fmt.Errorf("writing the answer: %w", err)
	case s.State != state.Led, checkID != "" && s.LeaderID != checkID:
		return &exit{exitUnled, nil}
	}
	return nil
}
