// Package aside keeps a candidate out of its election for a while, after what it
// does as leader has failed.
package aside

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrStandingDown is what Healthy returns for a while after a failure.
var ErrStandingDown = errors.New("standing down after a failure")

// Box reports whether a candidate stays out of its election. Its zero value does not.
// Its methods may be called by several goroutines at once.
type Box struct {
	mu    sync.Mutex
	why   error
	until time.Time
}

// For keeps the candidate out for d from now on, because of why.
func (b *Box) For(d time.Duration, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.why, b.until = why, time.Now().Add(d)
}

// Healthy is for Config.Healthy: an error while the candidate is to stay out.
func (b *Box) Healthy(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why != nil && time.Now().Before(b.until) {
		return fmt.Errorf("%w: %w", ErrStandingDown, b.why)
	}
	b.why = nil
	return nil
}
