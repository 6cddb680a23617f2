package loop

import (
	"log/slog"
	"sync"
	"time"
)

// Outage logs what fails again and again: a warning when it begins, one a minute with the number of
// failures while it goes on, and a line when it is over. If failures and successes take turns, it
// warns once a minute too, and then says when that is over. Its methods may be called by any number
// of goroutines. Times are elapsed times of any clock, always the same one.
type Outage struct {
	To   func(level slog.Level, msg string, args ...any)
	Over string // the line at the end
	Once bool   // it does not warn each minute

	mu     sync.Mutex
	on     bool
	open   map[string]time.Duration // what has failed, and not worked since, and when it failed
	since  time.Duration            // when the failures began that the lines count
	count  int
	last   time.Duration   // when the last failure was
	warned bool            // about these failures
	told   time.Duration   // when the last warning was logged
	texts  map[string]bool // what the warnings said; nil: there was none
}

// untilNext is the least time between two warnings that say the same.
const untilNext = time.Minute

// Failed notes a failure of the given kind. It logs msg and args if it is time to.
func (l *Outage) Failed(now time.Duration, kind, msg string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		if now-l.told >= untilNext {
			l.texts = nil
		}
		if now-l.last >= untilNext {
			l.count = 0
		}
		l.on, l.open = true, map[string]time.Duration{}
	}
	if l.count == 0 {
		l.since = now
	}
	l.open[kind], l.last = now, now
	l.count++
	l.tell(now, msg, args)
}

// Explain logs, if it is time to, more of a failure that is counted already.
func (l *Outage) Explain(now time.Duration, msg string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(now, msg, args)
}

func (l *Outage) tell(now time.Duration, msg string, args []any) {
	if l.texts[msg] && (l.Once || now-l.told < untilNext) {
		l.To(slog.LevelDebug, msg, args...)
		return
	}
	if l.count > 1 {
		args = append(args, "failed", l.count, "for", now-l.since)
	}
	if l.texts == nil {
		l.texts = map[string]bool{}
	}
	l.texts[msg], l.told, l.warned = true, now, l.on
	l.To(slog.LevelWarn, msg, args...)
}

// Worked notes a success of the given kind. It ends the outage if every kind that has failed in
// the last minute has worked since. It reports whether an outage is over.
func (l *Outage) Worked(now time.Duration, kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		return false
	}
	delete(l.open, kind)
	for _, at := range l.open {
		if now-at < untilNext {
			return false
		}
	}
	l.on = false
	if l.warned {
		l.To(slog.LevelInfo, l.Over, "after", now-l.since, "failed", l.count)
		l.warned, l.count = false, 0
	}
	return true
}
