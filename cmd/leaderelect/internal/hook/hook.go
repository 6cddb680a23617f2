// Package hook is what a leader does that toggles a service by commands: one when
// it begins to lead, another when it ends.
package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
)

// Config is what to run, and for how long to try.
type Config struct {
	Begin, End    string        // for the shell
	Pause         time.Duration // between two attempts of End
	Timeout       time.Duration // of one attempt of either command
	Drain         time.Duration // of all attempts of End
	Grace         time.Duration // before the view's end, End begins
	Span          time.Duration // the longest a view lasts without an extension
	ErrorTimeout  time.Duration // out of the election after a failure
	Stdout        io.Writer
	Stderr        io.Writer
	Store, Leader string   // for the environment; an empty Store is not in it
	Withheld      []string // variables that the commands do not find
	Logger        *slog.Logger

	// Resign gives up leadership, but not the campaign.
	Resign func(ctx context.Context)
}

// DrainTimeout is how long the lease may have to be kept until End has run: for
// the Config of that name.
func (c *Config) DrainTimeout() time.Duration { return c.Drain + 2*(c.polite()+killed) }

// polite is how long a command has to end that was asked to, before it is killed: so
// short that the other command still fits into Grace.
func (c *Config) polite() time.Duration { return min(c.Grace/4, killed) }

// killed is how long a command that was killed may take to be gone.
const killed = 5 * time.Second

// Hook toggles the service of one candidate. Elected is its OnElected, and
// Healthy its Healthy.
type Hook struct {
	c         Config
	aside     runner.Aside
	impatient context.Context // ends when somebody does not want to wait for End
	interrupt context.CancelCauseFunc

	mu     sync.Mutex
	failed error // End never succeeded, and has not since
}

// New returns a hook.
func New(c Config) *Hook {
	h := &Hook{c: c}
	h.impatient, h.interrupt = context.WithCancelCause(context.Background())
	return h
}

var errInterrupted = errors.New("asked to end once more, and did not wait for it")

// Interrupt has End give up.
func (h *Hook) Interrupt() { h.interrupt(errInterrupted) }

// Healthy keeps the candidate out of the election for a while after a failure.
func (h *Hook) Healthy(ctx context.Context) error { return h.aside.Healthy(ctx) }

// Failed is why the service may still be on: the end command never succeeded.
func (h *Hook) Failed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// standDown keeps the candidate out from now on.
func (h *Hook) standDown(err error) {
	h.aside.For(h.c.ErrorTimeout, err)
	h.c.Logger.Error("standing down", "for", h.c.ErrorTimeout, "err", err)
}

// Reset runs the end command once, before the election: what a candidate that was
// killed, or a machine that was, has left on is ended.
func (h *Hook) Reset(ctx context.Context) {
	h.c.Logger.Info("running the end command, to remove what an earlier run may have left on")
	if err := h.run(ctx, "end", h.c.End, 0); err != nil && ctx.Err() == nil {
		h.c.Logger.Error("the end command failed at the start, so the service may be on while another leads; it should succeed even if there is nothing to end", "err", err)
	}
}

// Elected is one leadership: the begin command, the time of leading, and the end
// command. It returns when that has succeeded or was given up.
func (h *Hook) Elected(ctx context.Context, view *leaderelection.TimeView) {
	log := h.c.Logger.With("token", uint64(view.ElectionNumber()))
	safe, stop := h.whileSafe(ctx, view)
	defer stop()
	begun := h.begin(safe, uint64(view.ElectionNumber()))
	if begun == nil {
		<-safe.Done()
	}
	switch {
	case ctx.Err() != nil:
		log.Info("running the end command; the lease is kept meanwhile if possible", "cause", context.Cause(ctx), "patience", h.c.Drain)
	case safe.Err() != nil:
		log.Warn("ending: the lease was not extended in time", "cause", context.Cause(safe))
	default:
		log.Error("the begin command failed; running the end command", "err", begun)
	}
	// What was begun is ended in any case, also after leadership.
	ended := h.end(context.WithoutCancel(ctx), uint64(view.ElectionNumber()))
	if !view.ValueInFuture() {
		log.Warn("the end command took longer than the view: another candidate may have begun already")
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

// errUnsafe is why a view that is about to end unextended is not relied on.
var errUnsafe = errors.New("the view is about to end")

// whileSafe is a ctx that ends with ctx, or Grace before the view does. It waits
// only for time.
func (h *Hook) whileSafe(ctx context.Context, view *leaderelection.TimeView) (context.Context, context.CancelFunc) {
	safe, cancel := context.WithCancelCause(ctx)
	alarm, err := proc.NewAlarm()
	if err != nil {
		cancel(err) // nothing is begun that might not be ended in time
		return safe, func() {}
	}
	go func() {
		defer alarm.Close()
		for view.ValueInFuture() {
			end := proc.At(view.Get(), h.c.Span).Sub(h.c.Grace)
			if end.Left() <= 0 {
				break
			}
			alarm.Set(end)
			select {
			case <-safe.Done():
				return
			case <-alarm.C:
			}
		}
		cancel(errUnsafe)
	}()
	return safe, func() { cancel(nil) }
}

// begin runs the begin command, once. It is asked to end when ctx does, and killed a
// little later.
func (h *Hook) begin(ctx context.Context, token uint64) error {
	h.c.Logger.Info("running the begin command", "token", token)
	return h.run(ctx, "begin", h.c.Begin, token)
}

// end runs the end command until it succeeds, Drain is over, or it was interrupted. The lease is kept
// meanwhile: nobody else begins while the service may be on.
func (h *Hook) end(ctx context.Context, token uint64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.c.Drain, fmt.Errorf("not over after %v in all", h.c.Drain))
	defer cancel()
	ctx, interrupt := context.WithCancelCause(ctx)
	defer context.AfterFunc(h.impatient, func() { interrupt(context.Cause(h.impatient)) })()
	for try := 1; ; try++ {
		h.c.Logger.Info("running the end command", "token", token)
		err := h.run(ctx, "end", h.c.End, token)
		if err == nil {
			return h.ended(nil)
		}
		if ctx.Err() == nil {
			h.c.Logger.Error("the end command failed; trying again", "try", try, "in", h.c.Pause, "err", err)
		}
		if !clocks.System().SleepFor(ctx, h.c.Pause) {
			if cause := context.Cause(ctx); !errors.Is(err, cause) {
				err = errors.Join(err, cause)
			}
			return h.ended(fmt.Errorf("the end command never succeeded, the service may still be on: %w", err))
		}
	}
}

func (h *Hook) ended(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = err
	return err
}

// run runs a command in a process group of its own, which is asked to end if it takes
// too long, and killed if that does not help.
func (h *Hook) run(ctx context.Context, what, command string, token uint64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.c.Timeout, fmt.Errorf("not over after %v", h.c.Timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdout, cmd.Stderr = h.c.Stdout, h.c.Stderr
	cmd.WaitDelay = h.c.polite()
	group(cmd)
	cmd.Env = runner.Environment(leaderelection.ElectionNumber(token), h.c.Leader, h.c.Store, h.c.Withheld)
	err := cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.Join(err, cause)
		if cmd.Process != nil {
			err = errors.Join(err, disband(cmd, h.c.polite()))
		}
	}
	if err != nil {
		return fmt.Errorf("the %s command: %w", what, err)
	}
	return nil
}
