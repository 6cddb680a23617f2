/*
Package leslog puts what a candidate is into its log lines, for log/slog.

	log := slog.New(leslog.NewHandler(slog.NewJSONHandler(os.Stderr, nil), campaign))
	log.Info("billed", "order", 7)

	{"level":"INFO","msg":"billed","order":7,"election":{"status":"leading","number":12,"leader":"worker-7","left":8200000000}}

What happens to the election itself is told to Config.Logger, which needs none of
this.
*/
package leslog

import (
	"context"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Key is the name of the group that the attributes are in.
const Key = "election"

// Campaign is what is asked. A *leaderelection.Campaign is one.
type Campaign interface {
	View() *leaderelection.TimeView
	Status() leaderelection.Status
	Leader() leaderelection.RaceEntry
}

// Attr returns a group with what c is at this moment:
//
//	status  following, leading, draining or stopped
//	number  of the newest leadership known, which while leading is the fencing token; left
//	        out while nothing is known
//	leader  who holds the record, as far as is known; left out where it is vacant
//	left    while the view lasts: what is left of it, as a duration
//
// It may be called by any number of goroutines at once, and asks nobody.
func Attr(c Campaign) slog.Attr {
	view, entry := c.View(), c.Leader()
	attrs := []any{slog.String("status", c.Status().String())}
	leads := view.ValueInFuture()
	number, leader := entry.ElectionNumber, entry.LeaderID
	if leads && view.ElectionNumber() > number { // the record that says so is on its way
		number, leader = view.ElectionNumber(), ""
	}
	if number != leaderelection.NoElections {
		attrs = append(attrs, slog.Uint64("number", uint64(number)))
	}
	if leader != "" {
		attrs = append(attrs, slog.String("leader", leader))
	}
	if leads {
		left := view.Get().Sub(view.Clock().Now().Round(0))
		attrs = append(attrs, slog.Duration("left", max(0, left).Round(time.Millisecond)))
	}
	return slog.Group(Key, attrs...)
}

// Handler adds Attr to each record. Made by NewHandler.
type Handler struct {
	next     slog.Handler
	campaign Campaign
}

// NewHandler returns a handler that hands each record to next, with Attr as it is
// then. Attributes given to Logger.With are worked out once, so those would go on
// saying what was. Under a group of Logger.WithGroup they are in that group, as are
// the record's own.
func NewHandler(next slog.Handler, c Campaign) *Handler { return &Handler{next, c} }

// Enabled is the next handler's.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle adds the attributes.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	r.AddAttrs(Attr(h.campaign))
	return h.next.Handle(ctx, r)
}

// WithAttrs returns a Handler whose records have more attributes.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.next.WithAttrs(attrs), h.campaign}
}

// WithGroup returns a Handler whose records are in a group.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.next.WithGroup(name), h.campaign}
}
