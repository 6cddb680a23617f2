package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
)

// How a candidate's process is told what it is: these are set for it.
const (
	envName     = "LEADERELECTION_DEMO_CANDIDATE"
	envElection = "LEADERELECTION_DEMO_ELECTION"
)

// cast are the candidates' processes.
type cast struct {
	all  map[string]*process
	news chan entry // what they write to the ledger, in its order; closed when all have ended
	died chan error // an end that nobody asked for
}

type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer // its end tells the candidate to end
	errs   strings.Builder
	wanted atomic.Bool   // its end
	gone   chan struct{} // closed when it has ended
}

// start runs this program again for each name, as a candidate. The ledger is a pipe that they share.
func start(names []string, election string) (*cast, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ledger, book, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer book.Close()
	c := &cast{all: map[string]*process{}, news: make(chan entry, 1000), died: make(chan error, len(names))}
	for _, name := range names {
		p := &process{cmd: exec.Command(self), gone: make(chan struct{})}
		p.cmd.Env = append(os.Environ(), envName+"="+name, envElection+"="+election)
		p.cmd.Stdout, p.cmd.Stderr = book, &p.errs
		ownGroup(p.cmd)
		if p.stdin, err = p.cmd.StdinPipe(); err == nil {
			err = p.cmd.Start()
		}
		if err != nil {
			c.killAll()
			return nil, fmt.Errorf("starting %s: %w", name, err)
		}
		c.all[name] = p
		go func() {
			defer close(p.gone)
			if err := p.cmd.Wait(); !p.wanted.Load() {
				c.died <- fmt.Errorf("%s ended by itself: %v: %s", name, err, &p.errs)
			}
		}()
	}
	go func() {
		defer close(c.news)
		defer ledger.Close()
		for lines := json.NewDecoder(ledger); ; {
			var e entry
			if err := lines.Decode(&e); err != nil {
				if !errors.Is(err, io.EOF) {
					c.died <- fmt.Errorf("reading the ledger: %w", err)
				}
				return
			}
			c.news <- e
		}
	}()
	return c, nil
}

// kill ends a candidate at once, also while it is frozen, and waits until it is gone.
func (c *cast) kill(name string) {
	p := c.all[name]
	p.wanted.Store(true)
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.gone
}

func (c *cast) killAll() {
	for name := range c.all {
		c.kill(name)
	}
}

// leave tells a candidate to release what it leads, and to end, and waits for that.
func (c *cast) leave(ctx context.Context, name string) error {
	p := c.all[name]
	p.wanted.Store(true)
	_ = p.stdin.Close() // closed already if it was killed
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s was told to end, and still runs after %v", name, patience))
	defer cancel()
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *cast) signal(name string, s os.Signal) error { return c.all[name].cmd.Process.Signal(s) }

// alive reports whether a candidate still runs.
func (c *cast) alive(name string) bool {
	select {
	case <-c.all[name].gone:
		return false
	default:
		return true
	}
}
