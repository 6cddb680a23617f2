package outbox

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// mostLines is how many lines of a log wait for somebody to read it.
const mostLines = 1000

// Log is what a log is written to: it takes each line at once, and writes it to Out when Out takes it.
// While too many lines wait, or Out refuses them, lines are lost; they are counted, and Lost's line
// stands in their place. Its methods may be called by several goroutines at once.
type Log struct {
	Out io.Writer
	// Lost is a line that says how many lines are missing.
	Lost func(lines int) []byte

	box  Box
	mu   sync.Mutex
	lost int // lines after the last one that waits, or that was written
}

// Write implements io.Writer. It never waits, and never fails.
func (l *Log) Write(line []byte) (int, error) {
	text := bytes.Clone(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.lost
	l.lost = 0
	if !l.box.Put(mostLines, func() { l.write(lost, text) }) {
		l.lost = lost + 1
	}
	return len(line), nil
}

// write writes a line, and before it how many are missing there.
func (l *Log) write(lost int, line []byte) {
	var err error
	if lost > 0 {
		if _, err = l.Out.Write(l.Lost(lost)); err == nil {
			lost = 0
		}
	}
	if err == nil && len(line) > 0 {
		_, err = l.Out.Write(line)
	}
	if err != nil && len(line) > 0 {
		lost++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost += lost; l.lost > 0 && err == nil { // it flows again: that is not left to the next line
		lost := l.lost
		if l.box.Put(1, func() { l.write(lost, nil) }) {
			l.lost = 0
		}
	}
}

// Flush waits until all is written, but no longer than within.
func (l *Log) Flush(within time.Duration) { l.box.Flush(within) }
