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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
)

// roleEnv has the role of a process that is a candidate, in JSON.
const roleEnv = "LEADERELECTION_BENCH_ROLE"

// role is the order that the bench gives a candidate process. It contests many elections at once, each with a
// client of its own, so that one run gives many samples.
type role struct {
	Contestant int // the index in contestants
	Addr       string
	Prefix     string // of the elections' keys
	ID         string
	Elections  int
	Term       time.Duration
	Stagger    time.Duration // between the joining of one election and the next
}

// event is a line that a candidate process prints.
type event struct {
	Election int    `json:"e"`
	What     string `json:"what"`
	At       int64  `json:"at"` // nanoseconds since 1970
	N        int64  `json:"n,omitempty"`
	Text     string `json:"text,omitempty"`
}

const (
	up      = "up"      // the process has begun
	joined  = "joined"  // it contests
	led     = "led"     // it was told that it leads
	stopped = "stopped" // it was asked to give up in order
	ops     = "ops"     // N requests so far, in all elections
	failed  = "failed"  // Text is the error
	gone    = "gone"    // the process has ended: of the parent's journal
)

// The orders that a candidate process reads from its standard input.
const (
	orderOps  = "ops"
	orderStop = "stop"
)

// candidateMain makes this process a candidate if its environment says so, and does not return
// then.
func candidateMain() {
	text := os.Getenv(roleEnv)
	if text == "" {
		return
	}
	c := candidate{out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(text), &c.role); err != nil {
		fmt.Fprintln(os.Stderr, roleEnv+":", err)
		os.Exit(2)
	}
	c.run()
	os.Exit(0)
}

// candidate is what a candidate process does.
type candidate struct {
	role
	ops atomic.Int64
	mu  sync.Mutex
	out *json.Encoder
}

func (c *candidate) say(e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.At = time.Now().UnixNano()
	_ = c.out.Encode(e) // nobody listens: standard input has ended as well
}

// run contests until it is told to stop, or its standard input ends.
func (c *candidate) run() {
	c.say(event{What: up})
	var wg sync.WaitGroup
	stop := make([]context.CancelFunc, c.Elections)
	for i := range stop {
		ctx, cancel := context.WithCancel(context.Background())
		stop[i] = cancel
		wg.Go(func() { c.contest(ctx, i) })
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case orderOps:
			c.say(event{What: ops, N: c.ops.Load()})
		case orderStop: // one election after the other, not all at the same instant
			for i, stop := range stop {
				c.say(event{Election: i, What: stopped})
				stop()
				time.Sleep(max(c.Stagger/10, 10*time.Millisecond))
			}
			wg.Wait()
			return
		}
	}
}

func (c *candidate) contest(ctx context.Context, i int) {
	if !clocks.System().SleepFor(ctx, time.Duration(i)*c.Stagger) {
		return
	}
	c.say(event{Election: i, What: joined})
	s := seat{Addr: c.Addr, Key: fmt.Sprintf("%s-%d", c.Prefix, i), ID: c.ID, Term: c.Term, Ops: &c.ops}
	if err := contestants[c.Contestant].contest(ctx, s, func() { c.say(event{Election: i, What: led}) }); err != nil {
		c.say(event{Election: i, What: failed, Text: err.Error()})
	}
}

// process is a candidate process, as its parent sees it: this program, started
// again.
type process struct {
	role
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	ended  chan struct{}
	killed time.Time // zero: it was not
	stderr strings.Builder

	mu      sync.Mutex
	events  []event
	changed chan struct{} // closed, and replaced, with each event
}

// starting is held while a process starts: dozens at once would keep those that lead from
// their extensions.
var starting = make(chan struct{}, runtime.NumCPU())

// startProcess starts a candidate process, and returns when it runs. It dies with the test, and
// with this process.
func startProcess(ctx context.Context, t testing.TB, r role) (*process, error) {
	starting <- struct{}{}
	defer func() { <-starting }()
	p := &process{role: r, ended: make(chan struct{}), changed: make(chan struct{})}
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
	return p, p.await(ctx, "starting", 2*startup, func(events []event) bool { return len(events) > 0 && events[0].What == up })
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
// says what was awaited if that takes longer than patience.
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

// ask returns how many requests the process has made so far.
func (p *process) ask(ctx context.Context) (n int64, err error) {
	before, _ := p.look()
	if err := p.order(orderOps); err != nil {
		return 0, err
	}
	err = p.await(ctx, "counting requests", time.Minute, func(events []event) bool {
		for _, e := range events[len(before):] {
			if e.What == ops {
				n = e.N
				return true
			}
		}
		return false
	})
	return n, err
}

// kill ends the process at once, and awaits its end.
func (p *process) kill() {
	if p.killed.IsZero() {
		p.killed = time.Now()
	}
	_ = p.cmd.Process.Kill() // nothing to kill if it has ended
	<-p.ended
	_ = p.stdin.Close()
}

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
