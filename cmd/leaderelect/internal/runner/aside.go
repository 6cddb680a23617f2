package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrStandingDown is what Healthy returns for a while after a failure.
var ErrStandingDown = errors.New("standing down after a failure")

// Aside keeps a candidate out of its election for a while, after what it does as leader has
// failed. Its zero value does not. Its methods may be called by several goroutines at once.
type Aside struct {
	mu    sync.Mutex
	why   error
	until time.Time
}

// For keeps the candidate out for d from now on, because of why.
func (a *Aside) For(d time.Duration, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why, a.until = why, time.Now().Add(d)
}

// Healthy is for Config.Healthy: an error while the candidate is to stay out.
func (a *Aside) Healthy(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.why != nil && time.Now().Before(a.until) {
		return fmt.Errorf("%w: %w", ErrStandingDown, a.why)
	}
	a.why = nil
	return nil
}
