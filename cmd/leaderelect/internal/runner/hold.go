package runner

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
)

// HolderConfig is how to lead without a command.
type HolderConfig struct {
	Times      Times
	ExpiryFile string    // empty: none
	Out        io.Writer // gets the fencing token
	Logger     *slog.Logger
	Begun      func()          // it leads, and has said so
	Failed     func(error)     // it could not say so: the lease is released
	Stopped    context.Context // ends when this program is asked to end
	Waits      bool            // somebody reads Out, and ends the work when leadership is to be given up
	Lost       func(error)     // it does not lead any more, though nobody asked this program to end
}

// Holder leads for one leadership, for the program that has started this one. Elected is its
// OnElected.
type Holder struct {
	c       HolderConfig
	nudge   chan struct{}
	claimed atomic.Bool
}

// NewHolder returns one.
func NewHolder(c HolderConfig) *Holder { return &Holder{c: c, nudge: make(chan struct{}, 1)} }

// Check reports what would keep it from leading.
func (h *Holder) Check() error {
	if h.c.ExpiryFile == "" {
		return nil
	}
	return tryExpiryFile(h.c.ExpiryFile)
}

// GiveUp says that no leadership may begin any more, and whether that was in time.
func (h *Holder) GiveUp() bool { return h.claimed.CompareAndSwap(false, true) }

// Extended is for Trace: it has the new end of the view told without delay.
func (h *Holder) Extended(leaderelection.ViewExtended) {
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

// Elected is the one leadership. It returns when somebody has asked this program to end: the
// work is over then, and the lease is released. If leadership is to be given up by another's
// request, that is told (EndLine), and the lease is kept, for the DrainTimeout, until this program
// is asked to end. If that does not happen, or leadership is lost, the work goes on until this program
// has ended, and a little longer: so it does not return, and the lease runs out by itself.
func (h *Holder) Elected(ctx context.Context, view *leaderelection.TimeView) {
	if !h.claimed.CompareAndSwap(false, true) {
		return
	}
	end := view.Get()
	alarm, file, err := h.begin(view.ElectionNumber(), end)
	if err != nil {
		h.c.Failed(err)
		return
	}
	defer alarm.Close()
	if file != nil {
		defer file.remove()
	}
	h.c.Begun()
	if err = h.hold(ctx, view, end, alarm, file); err == nil {
		return
	}
	h.c.Lost(err)
	select {}
}

// begin says that this process leads.
func (h *Holder) begin(number leaderelection.ElectionNumber, end time.Time) (alarm *proc.Alarm, file *expiryFile, err error) {
	if alarm, err = proc.NewAlarm(); err != nil {
		return nil, nil, err
	}
	if h.c.ExpiryFile != "" {
		if file, err = newExpiryFile(h.c.ExpiryFile); err == nil {
			err = file.write(end)
		}
	}
	if err == nil {
		if _, err = fmt.Fprintln(h.c.Out, uint64(number)); err != nil {
			err = fmt.Errorf("saying that this process leads: %w", err)
		}
	}
	if err != nil {
		alarm.Close()
		return nil, nil, err
	}
	return alarm, file, nil
}

// EndLine is printed when the leader is asked to hand over, or is not to lead any more: the work is
// to be ended, and then this program. It is for the reader of what this program prints.
const EndLine = "end"

// hold keeps on until this program is asked to end: nil. Else until less than the grace is left of
// the view, or that is over. File may be nil.
func (h *Holder) hold(ctx context.Context, view *leaderelection.TimeView, end time.Time, alarm *proc.Alarm, file *expiryFile) error {
	ended := ctx.Done()
	for {
		if next := view.Get(); next.After(end) {
			end = next
			if file != nil {
				if err := file.write(end); err != nil {
					h.c.Logger.Warn("the expiry file cannot be written: the time in it is too early", "err", err)
				}
			}
		}
		due := proc.At(end, h.c.Times.Span).Sub(h.c.Times.Grace)
		switch cause := context.Cause(ctx); {
		case h.c.Stopped.Err() != nil && view.ValueInFuture():
			return nil
		case cause != nil && !view.ValueInFuture():
			return fmt.Errorf("leadership is over: %w", cause)
		case cause != nil && !h.c.Waits:
			return fmt.Errorf("leadership is over: %w", cause)
		case cause != nil && ended != nil:
			ended = nil
			h.c.Logger.Warn("leadership is to be given up: end the work and then this program, so that it releases the lease", "cause", cause)
			_, _ = fmt.Fprintln(h.c.Out, EndLine) // who does not read it finds out by the end of this program
		case cause != nil && due.Left() <= 0:
			return fmt.Errorf("leadership is over, and this program was not asked to end in time: %w", cause)
		case due.Left() <= 0:
			return fmt.Errorf("the lease was not extended in time: it ends in %v", time.Until(end).Round(time.Millisecond))
		}
		alarm.Set(due)
		select {
		case <-ended:
		case <-h.c.Stopped.Done():
		case <-h.nudge:
		case <-alarm.C:
		}
	}
}
