package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
)

// wait is how long a candidate that runs its command once waits to be elected, from
// before the store is opened. It tells "another leads" from "the store does not
// answer": the one is how it should be, and about the other somebody should know.
type wait struct {
	limit  time.Duration // 0: one try
	id     string
	term   time.Duration
	skew   time.Duration
	blind  bool        // no clocks are compared: nothing that is held is known to be over
	giveUp func() bool // false: elected already
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	answered bool                            // the store has, once
	trouble  map[leaderelection.OpKind]error // of the last operation of each kind
}

// newWait has cfg tell it what it learns. It begins with begin.
func newWait(limit time.Duration, cfg *leaderelection.Config, giveUp func() bool, cancel context.CancelCauseFunc) *wait {
	w := &wait{limit: limit, id: cfg.LeaderID, term: cfg.TermLength, skew: cfg.MaxClockSkew, blind: cfg.Unsynchronized,
		giveUp: giveUp, cancel: cancel, trouble: make(map[leaderelection.OpKind]error)}
	cfg.Trace.StoreOp, cfg.Trace.News = w.op, w.news
	return w
}

// begin starts the wait, until stop is called.
func (w *wait) begin() (stop func()) {
	limit := w.limit
	if limit == 0 { // a try is over in the store's time, and never takes a term
		limit = w.term
	}
	late := time.AfterFunc(limit, w.over)
	return func() { late.Stop() }
}

// over ends the campaign, unless it has been won.
func (w *wait) over() {
	if w.giveUp() {
		w.cancel(w.verdict())
	}
}

// op is told of each answer of the store.
func (w *wait) op(o leaderelection.StoreOp) {
	failed := o.Err != nil && !errors.Is(o.Err, leaderelection.ErrLostRace) // that is an answer, too
	w.mu.Lock()
	if failed {
		w.trouble[o.Kind] = o.Err
	} else {
		w.answered = true
		delete(w.trouble, o.Kind)
	}
	w.mu.Unlock()
	if failed && w.limit == 0 {
		w.over()
	}
}

// news is told of each record, also by a feed.
func (w *wait) news(e leaderelection.RaceEntry) {
	w.mu.Lock()
	w.answered = true
	w.mu.Unlock()
	if w.limit == 0 && w.taken(e) {
		w.over()
	}
}

// taken reports whether a record has to be waited for.
func (w *wait) taken(e leaderelection.RaceEntry) bool {
	who, until := e.LeaderID, e.TermExpiry.Add(w.skew)
	if e.Vacant() {
		who = e.Successor // "" is nobody: it is free
	}
	return who != "" && who != w.id && (w.blind || time.Now().Before(until))
}

// verdict is why the candidate was not elected.
func (w *wait) verdict() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []error
	for _, err := range w.trouble {
		all = append(all, err)
	}
	if trouble := errors.Join(all...); trouble != nil {
		return fmt.Errorf("not elected within --wait %v, since the store failed: %w", w.limit, trouble)
	}
	if !w.answered {
		return fmt.Errorf("not elected within --wait %v, since the store did not answer", w.limit)
	}
	return fmt.Errorf("%w (--wait %v)", runner.ErrNotElected, w.limit)
}
