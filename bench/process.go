package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// process is a candidate process, as its parent sees it: this program, started
// again.
type process struct {
	role
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	proxy  *stores.Relay
	ended  chan struct{}
	killed time.Time // zero: it was not
	stderr strings.Builder

	mu      sync.Mutex
	events  []event
	changed chan struct{} // closed, and made afresh, with each event
}

// starting is held while a process starts: dozens at once would keep those that lead from
// their extensions.
var starting = make(chan struct{}, runtime.NumCPU())

// startProcess starts a candidate process that reaches its store through a proxy of
// its own, unless its role says where the store is, and returns when it runs. The
// store's answers arrive after delay. The process dies with the test, and with this process.
func startProcess(ctx context.Context, t testing.TB, r role, store string, delay time.Duration) (*process, error) {
	starting <- struct{}{}
	defer func() { <-starting }()
	p := &process{ended: make(chan struct{}), changed: make(chan struct{})}
	if r.Addr == "" {
		p.proxy = stores.NewRelay(t, store)
		p.proxy.Delay(delay)
		r.Addr = p.proxy.Addr
	}
	p.role = r
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(exe)
	p.cmd.Env = append(p.cmd.Environ(), roleEnv+"="+string(text))
	p.cmd.SysProcAttr = proctest.DieWithParent(&syscall.SysProcAttr{Setpgid: true})
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a candidate: %w", err)
	}
	go p.read(stdout)
	t.Cleanup(p.kill)
	return p, p.await(ctx, "starting", 2*startup, func(events []event) bool { return count(events, up) > 0 })
}

func (p *process) read(r io.Reader) {
	defer close(p.ended)
	for s := bufio.NewScanner(r); s.Scan(); {
		var e event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			e = event{What: failed, Text: "it printed " + s.Text()}
		}
		p.add(e)
	}
	_ = p.cmd.Wait() // it is killed, mostly
	p.add(event{What: gone, At: time.Now().UnixNano()})
}

func (p *process) add(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *process) look() ([]event, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events[:len(p.events):len(p.events)], p.changed
}

// await returns when the process's events are as is says; it returns an error that
// says what was awaited, where that takes longer than patience.
func (p *process) await(ctx context.Context, what string, patience time.Duration, is func([]event) bool) error {
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		events, changed := p.look()
		if is(events) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over.C:
			return fmt.Errorf("%s, candidate %s: %s: not after %v: %s", contestants[p.Contestant].name, p.ID, what, patience, p.trouble(events))
		}
	}
}

// trouble is what a process has complained of, in short.
func (p *process) trouble(events []event) string {
	for _, e := range events {
		if e.What == failed {
			return e.Text
		}
		if e.What == gone {
			return "it has ended: " + p.stderr.String()
		}
	}
	return "it has not complained"
}

// order sends the process an order.
func (p *process) order(o string) error {
	_, err := io.WriteString(p.stdin, o+"\n")
	return err
}

// ask returns how many requests the process has made so far, and what it has used.
func (p *process) ask(ctx context.Context) (said event, err error) {
	before, _ := p.look()
	if err := p.order(orderOps); err != nil {
		return said, err
	}
	err = p.await(ctx, "counting requests", time.Minute, func(events []event) bool {
		for _, e := range events[len(before):] {
			if e.What == ops {
				said = e
				return true
			}
		}
		return false
	})
	return said, err
}

// kill ends the process at once, and awaits its end.
func (p *process) kill() {
	if p.killed.IsZero() {
		p.killed = time.Now()
	}
	_ = p.cmd.Process.Kill() // nothing to kill, where it has ended
	<-p.ended
	_ = p.stdin.Close()
}

func (p *process) signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// at returns when each election first had an event of this kind, or no time.
func at(events []event, elections int, what string) []time.Time {
	times := make([]time.Time, elections)
	for _, e := range events {
		if e.What == what && times[e.Election].IsZero() {
			times[e.Election] = time.Unix(0, e.At)
		}
	}
	return times
}

// all reports whether each election has had an event of this kind.
func all(elections int, what string) func([]event) bool {
	return func(events []event) bool {
		for _, t := range at(events, elections, what) {
			if t.IsZero() {
				return false
			}
		}
		return true
	}
}

// span is a time in which a candidate believed that it led.
type span struct{ from, to time.Time }

// spans returns the times of belief in an election, by told or asked; one that has
// not ended ends at end.
func spans(events []event, election int, what string, end time.Time) (s []span) {
	for _, e := range events {
		if e.Election != election || e.What != what {
			continue
		}
		when := time.Unix(0, e.At)
		if e.On {
			s = append(s, span{when, end})
		} else if len(s) > 0 {
			s[len(s)-1].to = when
		}
	}
	return s
}

// overlap is how long both believed.
func overlap(a, b []span) (sum time.Duration) {
	for _, x := range a {
		for _, y := range b {
			from, to := x.from, x.to
			if y.from.After(from) {
				from = y.from
			}
			if y.to.Before(to) {
				to = y.to
			}
			sum += max(0, to.Sub(from))
		}
	}
	return sum
}
