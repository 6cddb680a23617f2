// Package hook is what a leader does that toggles a service by commands: one when
// it begins to lead, another when it ends.
package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Config is what to run, and how often to try.
type Config struct {
	Begin, End    string        // for the shell
	Retries       int           // of End, after the first attempt
	Pause         time.Duration // between two attempts
	Timeout       time.Duration // of one attempt of either command
	Grace         time.Duration // before the view's end, End begins
	ErrorTimeout  time.Duration // out of the election after a failure
	Stdout        io.Writer
	Stderr        io.Writer
	Store, Leader string // for the environment
	Logger        *slog.Logger

	// Resign gives up leadership, but not the campaign.
	Resign func(ctx context.Context)
}

// Drain is how long the lease may have to be kept until End has run: for
// Config.DrainTimeout.
func (c *Config) Drain() time.Duration {
	return time.Duration(c.Retries+1)*(c.Pause+c.Timeout+killed) + c.Timeout + killed
}

// killed is how long a command that was killed may take to be gone.
const killed = 5 * time.Second

// Hook toggles the service of one candidate. Elected is its OnElected, and
// Healthy its Healthy.
type Hook struct {
	c Config

	mu     sync.Mutex
	sick   error
	until  time.Time
	failed error // End never succeeded, and has not since
}

// New returns a hook.
func New(c Config) *Hook { return &Hook{c: c} }

// ErrStandingDown is what Healthy says for a while after a failure.
var ErrStandingDown = errors.New("standing down after a failure")

// Healthy keeps the candidate out of the election for a while after a failure.
func (h *Hook) Healthy(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sick != nil && time.Now().Before(h.until) {
		return fmt.Errorf("%w: %w", ErrStandingDown, h.sick)
	}
	h.sick = nil
	return nil
}

// Failed is why the service may still be on: the end command never succeeded.
func (h *Hook) Failed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// standDown keeps the candidate out from now on.
func (h *Hook) standDown(err error) {
	h.mu.Lock()
	h.sick, h.until = err, time.Now().Add(h.c.ErrorTimeout)
	h.mu.Unlock()
	h.c.Logger.Error("standing down", "for", h.c.ErrorTimeout, "err", err)
}

// Elected is one reign: the begin command, the time of leading, and the end
// command. It returns when that has succeeded or was given up.
func (h *Hook) Elected(ctx context.Context, view *leaderelection.TimeView) {
	log := h.c.Logger.With("election", uint64(view.ElectionNumber()))
	safe, stop := h.whileSafe(ctx, view)
	defer stop()
	begun := h.Begin(safe, uint64(view.ElectionNumber()))
	if begun == nil {
		<-safe.Done()
		if ctx.Err() == nil {
			log.Warn("ending: the lease was not extended in time")
		}
	} else if safe.Err() == nil {
		log.Error("the begin command failed; running the end command", "err", begun)
	}
	// What was begun is ended in any case, also after leadership.
	ended := h.End(context.WithoutCancel(ctx), uint64(view.ElectionNumber()))
	if !view.ValueInFuture() {
		log.Warn("the end command was not over when the view was: another may have begun already")
	}
	switch {
	case ended != nil:
		h.standDown(ended)
	case begun != nil && safe.Err() == nil:
		h.standDown(begun)
	}
	if ctx.Err() == nil {
		h.c.Resign(ctx)
	}
}

// whileSafe is a ctx that ends with ctx, or Grace before the view does. It waits
// for nothing but time.
func (h *Hook) whileSafe(ctx context.Context, view *leaderelection.TimeView) (context.Context, context.CancelFunc) {
	safe, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		look := time.NewTicker(100 * time.Millisecond)
		defer look.Stop()
		for view.ValueInFuture() && view.Clock().Until(view.Get()) > h.c.Grace {
			select {
			case <-safe.Done():
				return
			case <-look.C:
			}
		}
	}()
	return safe, cancel
}

// Begin runs the begin command, once. It is ended where ctx does.
func (h *Hook) Begin(ctx context.Context, election uint64) error {
	h.c.Logger.Info("running the begin command", "election", election)
	return h.run(ctx, "begin", h.c.Begin, election)
}

// End runs the end command until it succeeds, or has been tried often enough.
func (h *Hook) End(ctx context.Context, election uint64) error {
	var err error
	for try := range h.c.Retries + 1 {
		if try > 0 {
			h.c.Logger.Error("the end command failed; trying again", "try", try, "of", h.c.Retries, "in", h.c.Pause, "err", err)
			timer := time.NewTimer(h.c.Pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return h.ended(errors.Join(err, context.Cause(ctx)))
			}
		}
		h.c.Logger.Info("running the end command", "election", election)
		if err = h.run(ctx, "end", h.c.End, election); err == nil {
			return h.ended(nil)
		}
	}
	err = fmt.Errorf("the end command never succeeded, the service may still be on: %w", err)
	return h.ended(err)
}

func (h *Hook) ended(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = err
	return err
}

// run runs a command in a process group of its own, which is killed where it
// takes too long.
func (h *Hook) run(ctx context.Context, what, command string, election uint64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.c.Timeout, fmt.Errorf("not over after %v", h.c.Timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdout, cmd.Stderr = h.c.Stdout, h.c.Stderr
	cmd.WaitDelay = killed
	group(cmd)
	cmd.Env = append(without(os.Environ(), "LEADERELECT_ELECTION=", "LEADERELECT_LEADER_ID=", "LEADERELECT_STORE="),
		fmt.Sprintf("LEADERELECT_ELECTION=%d", election), "LEADERELECT_LEADER_ID="+h.c.Leader, "LEADERELECT_STORE="+h.c.Store)
	err := cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.Join(err, cause)
	}
	if err != nil {
		return fmt.Errorf("the %s command: %w", what, err)
	}
	return nil
}

// without leaves out what begins with one of prefixes.
func without(env []string, prefixes ...string) (kept []string) {
next:
	for _, e := range env {
		for _, p := range prefixes {
			if strings.HasPrefix(e, p) {
				continue next
			}
		}
		kept = append(kept, e)
	}
	return kept
}
