package hinted

import (
	"context"
	"sync"
	"time"
)

// Signal passes each hint on to all feeds of a process, for a source that tells only one listener.
// Give its Hints to NewDecider, and call Changed for each change: in the handler of a webhook, or a
// loop over a channel or over the messages of a queue.
//
//	var signal hinted.Signal
//	http.HandleFunc("POST /changed", func(http.ResponseWriter, *http.Request) { signal.Changed() })
//	decider := hinted.NewDecider(polled, signal.Hints, nil)
//
// The zero Signal is ready, and must not be copied. Its methods may be called by several goroutines
// at once. A Signal cannot know that its source has failed: then only the feeds' own polls find
// changes.
type Signal struct {
	mu        sync.Mutex
	listeners map[*func()]struct{}
}

// Changed is a hint to all listeners. It never blocks.
func (s *Signal) Changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for changed := range s.listeners {
		(*changed)()
	}
}

// Hints is a Hints. It listens until ctx ends, and does not fail.
func (s *Signal) Hints(ctx context.Context, changed func()) error {
	s.mu.Lock()
	if s.listeners == nil {
		s.listeners = map[*func()]struct{}{}
	}
	s.listeners[&changed] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, &changed)
	}()
	changed() // for what was written before it listened
	<-ctx.Done()
	return nil
}

const (
	// announceTime is how long an announcement may take.
	announceTime = time.Second
	// announceWait is how long a write waits for it.
	announceWait = time.Second / 10
)

// announcer makes announcements, one at a time. Those that come meanwhile become one.
type announcer struct {
	announce func(ctx context.Context) // may be nil
	mu       sync.Mutex
	running  bool
	again    bool
}

// written announces a write, and waits for that, but not for long, nor if an earlier
// one is still being announced.
func (a *announcer) written() {
	if a.announce == nil || !a.begin() {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for more := true; more; more = a.more() {
			ctx, cancel := context.WithTimeout(context.Background(), announceTime)
			a.announce(ctx)
			cancel()
		}
	}()
	timeout := time.NewTimer(announceWait)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
}

// begin reports whether there is nobody yet who announces.
func (a *announcer) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = a.running
	if a.running {
		return false
	}
	a.running = true
	return true
}

// more reports whether something was written meanwhile, and else ends the announcing.
func (a *announcer) more() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running, a.again = a.again, false
	return a.running
}
