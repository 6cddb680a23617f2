package decidertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// childEnv is what tells a process that it is a child of the suite, and what to do.
const childEnv = "LEADERELECTION_DECIDERTEST_CHILD"

// order is what a child is told.
type order struct {
	Address      string
	Racers, Wins int
	Patience     time.Duration
	Base         time.Time
}

// report is what a child says in the end.
type report struct {
	Won, Open int
	Failed    string
}

// Main is for TestMain of a test that uses Options.Address: call it first. In a process
// that the suite has started it opens the handle at an address, takes part in the race,
// and ends the process. In any other it does nothing.
func Main(open func(ctx context.Context, address string) (leaderelection.RaceDecider, error)) {
	if text := os.Getenv(childEnv); text != "" {
		if err := child(text, open); err != nil {
			fmt.Fprintln(os.Stderr, "decidertest:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func child(text string, open func(ctx context.Context, address string) (leaderelection.RaceDecider, error)) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx := context.Background() // the parent ends the process if it takes too long
	d, err := open(ctx, o.Address)
	if err != nil {
		return fmt.Errorf("opening %s: %w", o.Address, err)
	}
	if _, err := d.ReadCurrent(ctx); err != nil { // so that connections are there
		return err
	}
	fmt.Fprintln(os.Stdout, ready)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	h := &harness{Options: Options{Patience: o.Patience}, base: o.Base}
	c := h.countUp(ctx, []leaderelection.RaceDecider{d}, o.Racers, o.Wins)
	r := report{Won: c.won, Open: c.open}
	if c.failed != nil {
		r.Failed = c.failed.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// ready is what a child says when it has its handle.
const ready = "ready"

// Handles of other processes take part. Between these there is no lock but the store's.
func processes(h *harness) {
	const children, racers = 2, 2
	wins := 1 + h.Rounds/2
	ds := h.handles(h.handle)
	h.write(ds[0], nil, h.state(1, 0))
	text, err := json.Marshal(order{h.Address(ds[0]), racers, wins, h.Patience, h.base})
	if err != nil {
		h.Fatal(err)
	}
	running, cancel := context.WithCancel(h.Context())
	defer cancel()
	starts, reports := make(chan io.WriteCloser, children), make(chan counted, children)
	for range children {
		go func() { reports <- runChild(running, string(text), starts) }()
	}
	var gates []io.WriteCloser
	for len(gates) < children {
		select {
		case gate := <-starts:
			gates = append(gates, gate)
		case c := <-reports:
			h.Fatalf("a child process: %v", c.failed)
		}
	}
	for _, gate := range gates {
		_, _ = io.WriteString(gate, "go\n")
	}
	ctx, over := h.soon()
	defer over()
	all := h.countUp(ctx, ds, racers, wins)
	for range children {
		c := <-reports
		all.won, all.open, all.failed = all.won+c.won, all.open+c.open, errors.Join(all.failed, c.failed)
	}
	if all.failed != nil {
		h.Fatal(all.failed)
	}
	h.judgeCount(ds[0], all)
}

// runChild runs a child, and hands over what starts it when it is ready.
func runChild(ctx context.Context, text string, starts chan<- io.WriteCloser) counted {
	failed := func(err error) counted { return counted{failed: fmt.Errorf("a child process: %w", err)} }
	self, err := os.Executable()
	if err != nil {
		return failed(err)
	}
	cmd := exec.CommandContext(ctx, self, "-test.run=^$") // nothing, if TestMain does not call Main
	cmd.Env = append(os.Environ(), childEnv+"="+text)
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return failed(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return failed(err)
	}
	if err := cmd.Start(); err != nil {
		return failed(err)
	}
	lines := bufio.NewReader(out)
	var r report
	line, err := lines.ReadString('\n')
	switch {
	case err == nil && strings.TrimSpace(line) == ready:
		starts <- in
		err = json.NewDecoder(lines).Decode(&r)
	case err == nil:
		err = fmt.Errorf("it said %q: call decidertest.Main first in TestMain", strings.TrimSpace(line))
	}
	_ = in.Close()
	_, _ = io.Copy(io.Discard, lines)
	if waited := cmd.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", waited, said.String()))
	}
	if err != nil {
		return failed(err)
	}
	if r.Failed != "" {
		return failed(errors.New(r.Failed))
	}
	return counted{won: r.Won, open: r.Open}
}

// Proxy is an http.RoundTripper for the client of a store, see Options.Proxy. It hands
// requests on to Next (nil: http.DefaultTransport), and lies when the suite has it lie: it
// then answers by itself, with success and an empty page, or a page of HTML, as portals
// and broken proxies do.
type Proxy struct {
	Next http.RoundTripper

	liar httpfault.Liar
}

// RoundTrip implements http.RoundTripper.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) { return p.liar.RoundTrip(r) }

// pages are those of the lies that no client need be fooled by: they have nothing of what
// an answer of a store has.
var pages = []string{"Empty200", "Empty201", "Empty204", "Accepted202", "Braces200", "Braces201", "Page200", "Page201"}

// A success is proved: an answer that anything on the way could have made up is none.
func proxyNotBelieved(h *harness) {
	p := h.Proxy
	p.liar.Next = p.Next
	if p.Next == nil {
		p.liar.Next = http.DefaultTransport
	}
	h.Cleanup(func() { p.liar.Tell(nil) })
	d := h.handle()
	h.disbelieves(d, h.read(d))
	h.write(d, nil, h.state(1, 0))
	h.disbelieves(d, h.readBack(d, h.state(1, 0)))
	h.readBack(d, h.state(1, 0))
}

// disbelieves fails the test if a lie about the record, which is now, is believed.
func (h *harness) disbelieves(d leaderelection.RaceDecider, now *leaderelection.RaceEntry) {
	h.Helper()
	writes := func(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }
	for _, lie := range httpfault.Lies() {
		if !slices.Contains(pages, lie.Name) {
			continue
		}
		for what, about := range map[string]func(*http.Request) bool{"all requests": nil, "writes": writes} {
			h.Proxy.liar.About = about
			h.Proxy.liar.Tell(&lie)
			h.believes(fmt.Sprintf("%s are answered by a proxy (%s)", what, lie.Name), d, now, about == nil)
			h.Proxy.liar.Tell(nil)
		}
	}
	h.same("after lies about it", h.read(d), now)
}

// believes makes each call, and fails the test if it succeeds: a read only if it
// returns another record than the one that is there.
func (h *harness) believes(when string, d leaderelection.RaceDecider, now *leaderelection.RaceEntry, reads bool) {
	h.Helper()
	ctx, cancel := h.soon()
	defer cancel()
	tokens := []leaderelection.LeaderToken{now.Token, nil}
	for _, token := range tokens {
		next, err := d.WriteEntry(ctx, with(token, h.state(9, 9)))
		switch {
		case err == nil:
			h.Errorf("WriteEntry returned the token %#v while %s: a success must have what only the store's answer has, such as the new version", next, when)
		case errors.Is(err, context.DeadlineExceeded):
			h.Errorf("WriteEntry is not done after %v while %s: %v", h.Patience, when, err)
		}
	}
	if h.Proxy.liar.Told() == 0 {
		h.Fatalf("no request of WriteEntry has come by Options.Proxy: give it to the client of each handle")
	}
	if !reads {
		return
	}
	e, err := d.ReadCurrent(ctx)
	switch {
	case err != nil:
	case e == nil:
		h.Errorf("ReadCurrent returned nil without an error while %s", when)
	default:
		h.Errorf("ReadCurrent returned %s while %s: only the store may say that there is no record", show(e), when)
	}
}
