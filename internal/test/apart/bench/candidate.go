package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/test/fleet"
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
	*fleet.Process
	told   *fleet.Journal[event]
	killed time.Time // zero: it was not
}

// starting is held while a process starts: dozens at once would keep those that lead from
// their extensions.
var starting = make(chan struct{}, runtime.NumCPU())

// startProcess starts a candidate process, and returns when it runs. It dies with the test, and
// with this process.
func startProcess(t testing.TB, r role) (*process, error) {
	starting <- struct{}{}
	defer func() { <-starting }()
	text, err1 := json.Marshal(r)
	exe, err2 := os.Executable()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(cmd.Environ(), roleEnv+"="+string(text))
	p := &process{role: r, told: fleet.NewJournal(func(text string, ended bool) (e event) {
		if ended {
			return event{What: gone}
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			e = event{What: failed, Text: "it printed " + text}
		}
		return e
	})}
	var err error
	if p.Process, err = p.told.Start(t, r.ID, cmd); err != nil {
		return nil, err
	}
	return p, p.await("starting", 2*startup, func(events []event) bool { return len(events) > 0 && events[0].What == up })
}

// events are what the process has told so far.
func (p *process) events() (all []event) {
	p.told.Look(func(lines map[string][]event) { all = slices.Clone(lines[p.ID]) })
	return all
}

// await returns when the process's events are as is says; it returns an error that
// says what was awaited if that takes longer than patience.
func (p *process) await(what string, patience time.Duration, is func([]event) bool) error {
	if !p.told.Await(patience, func(lines map[string][]event) bool { return is(lines[p.ID]) }) {
		return fmt.Errorf("%s, candidate %s: %s: not after %v: %s", contestants[p.Contestant].name, p.ID, what, patience, p.trouble())
	}
	return nil
}

// trouble is what a process has complained of, in short.
func (p *process) trouble() string {
	for _, e := range p.events() {
		if e.What == failed {
			return e.Text
		}
		if e.What == gone {
			return "it has ended: " + p.Stderr()
		}
	}
	return "it has not complained"
}

// ask returns how many requests the process has made so far.
func (p *process) ask() (n int64, err error) {
	before := len(p.events())
	if err := p.Tell(orderOps); err != nil {
		return 0, err
	}
	err = p.await("counting requests", time.Minute, func(events []event) bool {
		for _, e := range events[before:] {
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
	p.killed = time.Now()
	p.Kill()
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
