package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/lifeline"
)

// roleEnv has the role of a process that is a candidate, in JSON.
const roleEnv = "LEADERELECTION_BENCH_ROLE"

// firstID is the ID of the candidates that lead first.
const firstID = "a"

// role is what a candidate process is told: it contests many elections at once,
// each with a client of its own, so that one run gives many samples.
type role struct {
	Contestant int // the index in contestants
	Addr       string
	Prefix     string // of the elections' keys
	ID         string
	Elections  int
	Term       time.Duration
	Stagger    time.Duration // between the joining of one election and the next
	Sample     bool          // say what is believed
	Shared     bool          // its elections share a client
	Again      bool          // whoever has lost an election, or failed, contests it again
	Steady     bool          // nobody stops it: a gap is the machine's load, and ends no belief that goes on
	Sentinel   bool          // Addr is that of a sentinel of Redis
	Lifeline   string        // the directory of its lifeline; "": it has none
	Undertake  bool          // it leads nothing, and releases for the dead of its machine
}

// event is a line that a candidate process prints.
type event struct {
	Election int    `json:"e"`
	What     string `json:"what"`
	On       bool   `json:"on,omitempty"`
	At       int64  `json:"at"` // nanoseconds since 1970
	N        int64  `json:"n,omitempty"`
	Text     string `json:"text,omitempty"`
	Used     usage  `json:"used,omitzero"`
}

const (
	up      = "up"      // the process has begun
	joined  = "joined"  // it contests
	led     = "led"     // it was told that it leads
	told    = "told"    // from now on, or no longer, the library's signal says that it leads
	asked   = "asked"   // the same by the library's predicate
	stopped = "stopped" // it was asked to give up in order
	ops     = "ops"     // N requests so far, in all elections, and what the process has Used
	failed  = "failed"  // Text is the error
	gone    = "gone"    // the process has ended: of the parent's journal
)

// The orders that a candidate process reads from its standard input.
const (
	orderOps   = "ops"
	orderStop  = "stop"
	orderPanic = "panic"
)

// again is when a candidate that has lost an election, or failed, contests it again.
const again = 100 * time.Millisecond

// sampling is how often beliefs are looked at. A gap is a time without a look: the
// process stood still, and did not act.
const (
	sampling = 2 * time.Millisecond
	gap      = 100 * time.Millisecond
)

// candidateMain makes this process a candidate where its environment says so, and
// does not return then.
func candidateMain() {
	text := os.Getenv(roleEnv)
	if text == "" {
		return
	}
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Fprintln(os.Stderr, roleEnv+":", err)
		os.Exit(2)
	}
	newCandidate(r).run()
	os.Exit(0)
}

// candidate is what a candidate process does.
type candidate struct {
	role
	ops  atomic.Int64
	stop []context.CancelFunc // of each election

	clients *clients // nil: each election has its own
	line    *lifeline.Lifeline

	mu      sync.Mutex
	beliefs []belief // of each election; zero where it was not elected
	said    [][2]bool
	held    [][2]time.Time // when a look that found a belief was begun, the last time
	out     *json.Encoder
}

func newCandidate(r role) *candidate {
	c := &candidate{
		role: r, stop: make([]context.CancelFunc, r.Elections),
		beliefs: make([]belief, r.Elections), said: make([][2]bool, r.Elections), held: make([][2]time.Time, r.Elections), out: json.NewEncoder(os.Stdout),
	}
	if r.Shared {
		c.clients = &clients{made: map[any]any{}}
	}
	if r.Lifeline != "" {
		var err error
		if c.line, err = lifeline.Dir(r.Lifeline); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	return c
}

func (c *candidate) say(e event) {
	if e.At == 0 {
		e.At = time.Now().UnixNano()
	}
	_ = c.out.Encode(e) // nobody listens: standard input has ended as well
}

func (c *candidate) event(e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.say(e)
}

// run contests until it is told to stop, or its standard input ends.
func (c *candidate) run() {
	c.event(event{What: up})
	var wg sync.WaitGroup
	for i := range c.Elections {
		ctx, cancel := context.WithCancel(context.Background())
		c.stop[i] = cancel
		wg.Go(func() { c.contest(ctx, i) })
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	if c.Sample {
		go c.sample()
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case orderOps:
			c.event(event{What: ops, N: c.ops.Load(), Used: used()})
		case orderStop:
			c.stopAll()
			<-finished
			return
		case orderPanic:
			c.event(event{What: stopped})
			panic("as ordered")
		}
	}
}

// stopAll gives up one election after the other, not all at the same instant.
func (c *candidate) stopAll() {
	tick := time.NewTicker(max(c.Stagger/10, 10*time.Millisecond))
	defer tick.Stop()
	for i, stop := range c.stop {
		c.event(event{Election: i, What: stopped})
		stop()
		<-tick.C
	}
}

func (c *candidate) contest(ctx context.Context, i int) {
	if !clocks.System().SleepFor(ctx, time.Duration(i)*c.Stagger) {
		return
	}
	c.event(event{Election: i, What: joined})
	s := seat{Addr: c.Addr, Key: fmt.Sprintf("%s-%d", c.Prefix, i), ID: c.ID, Term: c.Term, Ops: &c.ops, Clients: c.clients, Sentinel: c.Sentinel, Line: c.line, Undertake: c.Undertake}
	for {
		err := contestants[c.Contestant].contest(ctx, s, func(b belief) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.beliefs[i] = b
			c.say(event{Election: i, What: led})
			c.look(i)
		})
		if err != nil {
			c.event(event{Election: i, What: failed, Text: err.Error()})
		}
		if !c.Again || !clocks.System().SleepFor(ctx, again) {
			return
		}
	}
}

// sample looks at all beliefs again and again, and says when they change. Where it
// has stood still it says that they ended before, since nothing was done meanwhile.
func (c *candidate) sample() {
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	for last := time.Now(); ; <-tick.C {
		last = c.lookAgain(last)
	}
}

// lookAgain looks at all beliefs, after the look that began at last, and returns when it began.
func (c *candidate) lookAgain(last time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(last) > gap && !c.Steady {
		for i := range c.said {
			c.tell(i, 0, false, last)
			c.tell(i, 1, false, last)
		}
	}
	for i := range c.said {
		c.look(i)
	}
	return now
}

// look says what has changed in a belief. The caller has locked c. Where the process stood
// still since it last found the belief, also in the midst of this look, the belief ended
// then: nothing was done meanwhile.
func (c *candidate) look(i int) {
	b := c.beliefs[i]
	if b.told == nil {
		return
	}
	begun := time.Now()
	is := [2]bool{b.told(), false}
	if is[1] = is[0]; b.asked != nil {
		is[1] = b.asked()
	}
	for k := range is {
		at := begun
		if is[k] {
			c.held[i][k] = begun
		} else if at = time.Now(); at.Sub(c.held[i][k]) > gap {
			at = c.held[i][k]
		}
		c.tell(i, k, is[k], at)
	}
}

// tell says one belief, if it is another than before.
func (c *candidate) tell(i, k int, is bool, at time.Time) {
	if is != c.said[i][k] {
		c.said[i][k] = is
		c.say(event{Election: i, What: [2]string{told, asked}[k], On: is, At: at.UnixNano()})
	}
}
