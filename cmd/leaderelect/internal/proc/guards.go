//go:build unix

package proc

import (
	"os"
	"sync"
)

// guards are the living guards of this process: what is below one of them is not what
// another has left behind. They are of the process, as its children are.
var guards living

type living struct {
	mu   sync.Mutex
	pids map[int]bool
}

// begin starts a guard. Nobody sees it in between without being told that it is one.
func (l *living) begin(start func() (*os.Process, error)) (*os.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := start()
	if err == nil {
		if l.pids == nil {
			l.pids = map[int]bool{}
		}
		l.pids[p.Pid] = true
	}
	return p, err
}

// gone notes that a guard was awaited.
func (l *living) gone(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pids, pid)
}
