package decidertest

import (
	"context"
	"errors"
	"time"

	"github.com/c8e606e4/leaderelection"
)

var contextChecks = []check{
	{"CancelledRead", func(h *harness) { h.endedRead(cancelled(h)) }},
	{"CancelledWrite", func(h *harness) { h.endedWrite(cancelled(h)) }},
	{"DeadlinePassedRead", func(h *harness) { h.endedRead(expired(h)) }},
	{"DeadlinePassedWrite", func(h *harness) { h.endedWrite(expired(h)) }},
	// A ctx that ends while the calls are under way: both return, and the record is
	// one of the two that it may be.
	{"EndsUnderTheCall", func(h *harness) {
		d := h.handle()
		h.write(d, nil, h.state(1, 0))
		for i := range uint64(h.Rounds) {
			before := h.readSince(d, h.state(1, 0)) // a stale read may still find nothing
			ctx, cancel := context.WithCancel(h.Context())
			go cancel()
			var written error
			h.within("WriteEntry, its ctx ended meanwhile", func() {
				_, written = d.WriteEntry(ctx, with(before.Token, h.state(i+2, 0)))
			})
			var read error
			h.within("ReadCurrent, its ctx ended meanwhile", func() { _, read = d.ReadCurrent(ctx) })
			for what, err := range map[string]error{"WriteEntry": written, "ReadCurrent": read} {
				if errors.Is(err, leaderelection.ErrPermanent) {
					h.Errorf("%s, its ctx ended meanwhile, says that no retry can help: %v", what, err)
				}
			}
			if written == nil {
				h.readBack(d, h.state(i+2, 0))
			}
			if err := h.isState(h.readSince(d, h.state(1, 0))); err != nil {
				h.Error(err)
			}
		}
	}},
}

func cancelled(h *harness) context.Context {
	ctx, cancel := context.WithCancel(h.Context())
	cancel()
	return ctx
}

func expired(h *harness) context.Context {
	ctx, cancel := context.WithDeadline(h.Context(), time.Now().Add(-time.Hour))
	h.Cleanup(cancel)
	return ctx
}

// saysEnded fails the test if err is not what a call whose ctx had ended may
// return.
func (h *harness) saysEnded(what string, ctx context.Context, err error) {
	h.Helper()
	switch {
	case err == nil:
		h.Errorf("%s, its ctx ended before, returned no error", what)
	case errors.Is(err, leaderelection.ErrLostRace):
		h.Errorf("%s, its ctx ended before, says that a race was lost: %v", what, err)
	case errors.Is(err, leaderelection.ErrPermanent):
		h.Errorf("%s, its ctx ended before, says that no retry can help: %v", what, err)
	case !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)):
		h.Errorf("%s, its ctx ended before, does not wrap %v: %v", what, ctx.Err(), err)
	}
}

func (h *harness) endedRead(ctx context.Context) {
	d := h.handle()
	h.write(d, nil, h.state(1, 0))
	var err error
	h.within("ReadCurrent, its ctx ended before", func() { _, err = d.ReadCurrent(ctx) })
	h.saysEnded("ReadCurrent", ctx, err)
	h.readBack(d, h.state(1, 0)) // it does no harm to the handle
}

func (h *harness) endedWrite(ctx context.Context) {
	d := h.handle()
	var err error
	h.within("WriteEntry, its ctx ended before", func() { _, err = d.WriteEntry(ctx, h.state(1, 0)) })
	h.saysEnded("WriteEntry", ctx, err)
	e := h.read(d)
	h.write(d, e.Token, h.state(2, 0))
	h.readBack(d, h.state(2, 0))
}
