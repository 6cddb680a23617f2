// The demo shows an election at work, in twenty seconds and with nothing
// installed but Go:
//
//	go run ./examples/demo
//
// It starts four candidates as processes of their own, whose election is a file.
// The leader does what only a leader may: it adds a line to a ledger that all of
// them share. Then things go wrong. The leader is killed. The next one is frozen
// for longer than its term, and thawed. The third is asked to hand over. At the
// end the ledger is checked for what must never be in it: an act of one leader
// after the first act of the next.
//
// Read candidate.go first: it is what a program of yours would do.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
)

// The term is short so that there is something to see. The default of 15 s is right for most.
const (
	term     = 3 * time.Second
	skew     = 200 * time.Millisecond
	beat     = 500 * time.Millisecond // between two acts of a leader
	patience = 5 * term               // for a leader to come: far more than it takes
)

var names = []string{"ada", "bob", "cyd", "dan"}

func main() {
	if name := os.Getenv(envName); name != "" {
		os.Exit(candidate(name, os.Getenv(envElection)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, os.Stdout)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo runs the whole of it, and leaves nothing behind.
func demo(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "leaderelection-demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &stage{out: out, begun: time.Now(), election: filepath.Join(dir, "election.json")}
	s.say("term %v, clocks may differ by %v, %d candidates", term, skew, len(names))
	if s.cast, err = start(names, s.election); err != nil {
		return err
	}
	defer s.cast.killAll()
	if err := s.play(ctx); err != nil {
		return err
	}
	return s.verdict()
}

// stage is what the demo is played on.
type stage struct {
	out      io.Writer
	begun    time.Time
	election string
	cast     *cast
	ledger   []entry
	table    []row
}

// row is one change of the leader.
type row struct {
	what     string
	from, to entry
	took     time.Duration
}

// say prints a line.
func (s *stage) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1f s  %s\n", time.Since(s.begun).Seconds(), fmt.Sprintf(format, args...))
}

// play is what happens, from the first election to the last release.
func (s *stage) play(ctx context.Context) error {
	for _, name := range names {
		s.say("%s stands (pid %d)", name, s.cast.all[name].cmd.Process.Pid)
	}
	if err := s.successor(ctx, "first election", entry{}, s.begun); err != nil {
		return err
	}
	scenes := []func(context.Context, entry) error{s.killLeader, s.freezeLeader, s.handOver}
	if freeze == nil {
		s.say("(this system has no SIGSTOP: the frozen leader is left out)")
		scenes = slices.Delete(scenes, 1, 2)
	}
	for _, scene := range scenes {
		leader, err := s.acts(ctx, 6)
		if err != nil {
			return err
		}
		if err := scene(ctx, leader); err != nil {
			return err
		}
	}
	leader, err := s.acts(ctx, 4)
	if err != nil {
		return err
	}
	// The leader ends last, so that nobody follows it for the moment until that one is told as well.
	standbys := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == leader.Name })
	for _, name := range append(standbys, leader.Name) {
		if err := s.cast.leave(ctx, name); err != nil {
			return err
		}
	}
	s.say("all have stopped")
	return nil
}

// killLeader: nobody is told, so the others must wait until the term has run out.
func (s *stage) killLeader(ctx context.Context, leader entry) error {
	at := time.Now()
	s.cast.kill(leader.Name)
	s.say("KILL %s: its term must run out, and the allowance for clocks", leader.Name)
	return s.successor(ctx, "kill -9", leader, at)
}

// freezeLeader: a leader that stands still, and does not know it. It comes back in
// the middle of its work, sure that it leads. Its view knows better.
func (s *stage) freezeLeader(ctx context.Context, leader entry) error {
	at := time.Now()
	if err := s.cast.signal(leader.Name, freeze); err != nil {
		return err
	}
	s.say("FREEZE %s in the middle of its work", leader.Name)
	if err := s.successor(ctx, "freeze (SIGSTOP)", leader, at); err != nil {
		return err
	}
	if _, err := s.acts(ctx, 2); err != nil {
		return err
	}
	s.say("THAW %s, %.1f s later", leader.Name, time.Since(at).Seconds())
	if err := s.cast.signal(leader.Name, thaw); err != nil {
		return err
	}
	_, err := s.until(ctx, leader.Name+"'s late act to be fenced off", func(e entry) bool { return e.Kind == fenced && e.Token == leader.Token })
	return err
}

// handOver: by agreement it takes a moment.
func (s *stage) handOver(ctx context.Context, leader entry) error {
	to := slices.IndexFunc(names, func(name string) bool { return name != leader.Name && s.cast.alive(name) })
	s.say("TRANSFER: %s is asked to hand over to %s", leader.Name, names[to])
	at := time.Now()
	if err := leaderelection.Transfer(ctx, file.NewDecider(s.election, nil), names[to]); err != nil {
		return err
	}
	return s.successor(ctx, "hand-over (Transfer)", leader, at)
}

// successor waits for the next leadership, and notes how long it took since at.
func (s *stage) successor(ctx context.Context, what string, from entry, at time.Time) error {
	to, err := s.until(ctx, "a leader after "+what, func(e entry) bool { return e.Kind == begin && e.Token > from.Token })
	s.table = append(s.table, row{what, from, to, to.At.Sub(at)})
	return err
}

// acts waits for n acts, and returns the last one. Just after it, the leader is in the middle of its
// work, not of an act.
func (s *stage) acts(ctx context.Context, n int) (last entry, err error) {
	for range n {
		if last, err = s.until(ctx, "an act", func(e entry) bool { return e.Kind == act }); err != nil {
			break
		}
	}
	return last, err
}

// until prints what the candidates do, until one does what is looked for.
func (s *stage) until(ctx context.Context, what string, is func(entry) bool) (entry, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case e := <-s.cast.news:
			s.ledger = append(s.ledger, e)
			s.say("  %s", e)
			if is(e) {
				return e, nil
			}
		case err := <-s.cast.died:
			return entry{}, err
		case <-late.C:
			return entry{}, fmt.Errorf("not within %v: %s", patience, what)
		case <-ctx.Done():
			return entry{}, context.Cause(ctx)
		}
	}
}

// verdict checks the ledger, and prints what came of it.
func (s *stage) verdict() error {
	for e := range s.cast.news { // what was written after the last look
		s.ledger = append(s.ledger, e)
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\nEVENT\tLEADER\tTOKEN\tHAND-OVER TOOK")
	for _, r := range s.table {
		leader, token := r.to.Name, fmt.Sprint(r.to.Token)
		if r.from.Token > 0 {
			leader, token = r.from.Name+" -> "+leader, fmt.Sprintf("%d -> %s", r.from.Token, token)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.3f s\n", r.what, leader, token, r.took.Seconds())
	}
	_ = table.Flush() // as of all that is printed
	kinds := map[string]int{}
	for _, e := range s.ledger {
		kinds[e.Kind]++
	}
	fmt.Fprintf(s.out, "\nledger: %d acts in %d leaderships, %d late act fenced off\n", kinds[act], kinds[begin], kinds[fenced])
	if faults := check(s.ledger); len(faults) > 0 {
		for _, f := range faults {
			fmt.Fprintln(s.out, "FAULT:", f)
		}
		return fmt.Errorf("the ledger has %d faults", len(faults))
	}
	fmt.Fprintln(s.out, "0 overlapping leaderships: every token grew, no act came after a later leader's first, no two views overlapped")
	return nil
}

// check goes through the ledger as it was written, and returns what must not be in it.
func check(ledger []entry) (faults []string) {
	var last entry
	for _, e := range ledger {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("%s with token %d, ", e.Name, e.Token)+fmt.Sprintf(format, args...))
		}
		switch {
		case e.Kind == fenced: // it has done nothing
			continue
		case e.Token < last.Token:
			fault("after the first act of %s with token %d", last.Name, last.Token)
			continue
		case e.Token == last.Token && e.Name != last.Name:
			fault("which is %s's", last.Name)
		case e.Token > last.Token && e.At.Before(last.Until):
			fault("%v before the end of the view of %s with token %d", last.Until.Sub(e.At), last.Name, last.Token)
		}
		if !e.At.Before(e.Until) {
			fault("%v after the end of its view", e.At.Sub(e.Until))
		}
		if last = e; e.Kind == end {
			last.Until = e.At // it has given the rest of its view up
		}
	}
	return faults
}

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
