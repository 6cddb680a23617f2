package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// process is a candidate's process.
type process struct {
	name   string
	cmd    *exec.Cmd
	orders io.WriteCloser // its standard input: kept open as long as it may live
	errs   strings.Builder
	gone   chan struct{} // closed when it has ended

	mu     sync.Mutex
	wanted bool // its end is no surprise
}

// spawn runs this program again, as a candidate. What it does goes to news; an
// end that nobody asked for goes to died.
func spawn(name, storeURL, ledger string, news chan<- entry, died chan<- error) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.Command(self), gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), envName+"="+name, envStore+"="+storeURL, envLedger+"="+ledger)
	p.cmd.Stderr = &p.errs
	ownGroup(p.cmd)
	if p.orders, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.gone)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if e, err := parseEntry(lines.Text()); err == nil {
				news <- e
			}
		}
		err := p.cmd.Wait()
		if p.mu.Lock(); !p.wanted {
			died <- fmt.Errorf("%s ended by itself: %v: %s", name, err, p.errs.String())
		}
		p.mu.Unlock()
	}()
	return p, nil
}

// kill ends it at once, also while it is frozen, and waits until it is gone.
func (p *process) kill() {
	p.expectEnd()
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// quit tells it to release what it leads and to end.
func (p *process) quit() error {
	p.expectEnd()
	_, err := fmt.Fprintln(p.orders, "quit")
	return err
}

func (p *process) expectEnd() {
	p.mu.Lock()
	p.wanted = true
	p.mu.Unlock()
}

// alive reports whether it still runs.
func (p *process) alive() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}
