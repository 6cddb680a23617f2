// Package health keeps the one account of how this process does: what it is doing, when the
// store last answered, and how it last failed. systemd's STATUS, the sidecar's /self and the
// time at which a supervisor is told READY are all made of it.
package health

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Account is what is known, as JSON.
type Account struct {
	Phase       string    `json:"phase"`
	LastSuccess time.Time `json:"last_success,omitzero"` // the store answered
	LastError   string    `json:"last_error,omitempty"`  // how it last failed, even if it answers again
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	Failing     bool      `json:"failing"` // it has not answered since LastErrorAt
}

// Line keeps an Account. Its methods may be called by several goroutines at once. The zero
// value is ready.
type Line struct {
	// Fit takes out of an error what strangers must not read. Optional.
	Fit func(string) string
	// Told is called with each new Text, one call at a time. Optional.
	Told func(text string)
	// Answered is called when the store answers for the first time. Optional.
	Answered func()

	mu    sync.Mutex
	now   Account
	since time.Time // of the first failure after the last success
	last  string    // that was told
}

// Phase says what this process is doing.
func (l *Line) Phase(phase string) { l.change(func() { l.now.Phase = phase }) }

// Called takes in how a call of the store has ended.
func (l *Line) Called(err error) {
	now := time.Now().Round(0)
	first := false
	l.change(func() {
		if err == nil || errors.Is(err, leaderelection.ErrLostRace) { // that is an answer, too
			first = l.now.LastSuccess.IsZero()
			l.now.LastSuccess, l.now.Failing = now, false
			return
		}
		if !l.now.Failing {
			l.since = now
		}
		l.now.Failing, l.now.LastErrorAt, l.now.LastError = true, now, err.Error()
		if l.Fit != nil {
			l.now.LastError = l.Fit(l.now.LastError)
		}
	})
	if first && l.Answered != nil {
		l.Answered()
	}
}

func (l *Line) change(by func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by()
	if text := l.text(); l.Told != nil && text != l.last {
		l.last = text
		l.Told(text)
	}
}

// text is the account in a line. It does not change while nothing does.
func (l *Line) text() string {
	switch {
	case !l.now.Failing:
		return l.now.Phase
	case l.now.LastSuccess.IsZero():
		return fmt.Sprintf("%s; the store has not answered yet: %s", l.now.Phase, l.now.LastError)
	}
	return fmt.Sprintf("%s; the store does not answer since %s: %s", l.now.Phase, l.since.UTC().Format(time.RFC3339), l.now.LastError)
}

// Account is what is known now.
func (l *Line) Account() Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// Trace has l told of each call, and each feed.
func (l *Line) Trace() *leaderelection.Trace {
	return &leaderelection.Trace{
		StoreOp: func(o leaderelection.StoreOp) { l.Called(o.Err) },
		Feed:    func(f leaderelection.FeedEvent) { l.Called(f.Err) },
	}
}
