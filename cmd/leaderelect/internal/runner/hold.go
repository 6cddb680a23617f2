package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
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
	c     HolderConfig
	nudge chan struct{}
	file  *expiryFile
	out   outbox.Box // of what is written to c.Out
}

// NewHolder returns one.
func NewHolder(c HolderConfig) *Holder {
	return &Holder{c: c, nudge: make(chan struct{}, 1), file: newExpiryFile(c.ExpiryFile)}
}

// Check reports what would keep it from leading.
func (h *Holder) Check() error {
	if h.c.ExpiryFile == "" {
		return nil
	}
	return h.file.try()
}

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
	alarm, err := proc.NewAlarm()
	if err != nil {
		h.c.Failed(err)
		return
	}
	defer alarm.Close()
	end := view.Get()
	err = h.begin(ctx, view.ElectionNumber(), end)
	var failed error
	switch {
	case err == nil:
		h.c.Begun()
		err = h.hold(ctx, view, end, alarm)
	case h.c.Stopped.Err() != nil:
		err = nil
	case ctx.Err() != nil:
		err = fmt.Errorf("leadership is over: %w", context.Cause(ctx))
	case !errors.Is(err, outbox.ErrHangs): // nobody knows that this process leads
		failed, err = err, nil
	}
	if err == nil {
		err = h.remove()
	}
	if err != nil {
		h.c.Lost(errors.Join(failed, err))
		select {}
	}
	if failed != nil {
		h.c.Failed(failed)
	}
}

// begin says that this process leads. It has until the grace before the view's end for that: what is
// written later would say so to somebody who has no time left.
func (h *Holder) begin(ctx context.Context, number leaderelection.ElectionNumber, end time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.c.Stopped, func() { cancel(context.Cause(h.c.Stopped)) })()
	due := h.due(end)
	if h.c.ExpiryFile != "" {
		if err := h.file.begin(ctx, due.Left(), end); err != nil {
			return err
		}
	}
	if err := h.out.Within(ctx, due.Left(), func() error {
		_, err := fmt.Fprintln(h.c.Out, uint64(number))
		return err
	}); err != nil {
		return fmt.Errorf("saying that this process leads: %w", err)
	}
	return nil
}

// remove takes the file away. While that is not known the lease must not be released: the file says that
// somebody may act, until the term is over.
func (h *Holder) remove() error {
	if h.c.ExpiryFile == "" {
		return nil
	}
	if err := h.file.remove(h.file.patience); err != nil {
		return fmt.Errorf("the lease is not released, but runs out, since a file may say that it goes on: %w", err)
	}
	return nil
}

// EndLine is printed when the leader is asked to hand over, or is not to lead any more: the work is
// to be ended, and then this program. It is for the reader of what this program prints.
const EndLine = "end"

// due is when this process must end if the view does at end: the grace before that, and the margin, in which
// it says why.
func (h *Holder) due(end time.Time) proc.Deadline {
	return proc.At(end, h.c.Times.Span).Sub(h.c.Times.Grace + h.c.Times.Margin)
}

// hold keeps on until this program is asked to end: nil. Else until less than the grace is left of
// the view, or that is over.
func (h *Holder) hold(ctx context.Context, view *leaderelection.TimeView, end time.Time, alarm *proc.Alarm) error {
	ended := ctx.Done()
	for {
		if next := view.Get(); next.After(end) {
			end = next
			if h.c.ExpiryFile != "" {
				h.file.tell(end, h.c.Logger)
			}
		}
		due := h.due(end)
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
			h.out.Put(1, func() { _, _ = fmt.Fprintln(h.c.Out, EndLine) }) // who does not read it finds out by the end of this program
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
