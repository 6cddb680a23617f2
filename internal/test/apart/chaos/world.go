//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/fleet/upgradetest/newer"
)

// world is one run: a store on its hosts, candidates on theirs, and the registers.
type world struct {
	settings
	dir        string
	lifelines  [2]string  // the candidates are on two machines, as far as their kernels can tell
	rand       *rand.Rand // of the schedule; one goroutine at a time
	net        *network
	registers  *host
	candidates []*person
	store      *cluster
	log        io.Writer
	leader     atomic.Pointer[person]
	begun      time.Time
	mu         sync.Mutex
	faults     map[string]int
	hits       int // how many faults have befallen a leaderelect that led
}

// cluster is a store's servers.
type cluster struct {
	nodes []*host
	// start starts a server that was killed.
	start func(node *host) error
	// url is what candidates open.
	url string
	// failover promotes another server, in a store that does not do it by itself. It may
	// be nil.
	failover func() error
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.log, "%7.2f  %s\n", time.Since(w.begun).Seconds(), fmt.Sprintf(format, args...))
}

// server starts a program on a host, as a server that stays.
func (w *world) server(h *host, args ...string) error { return w.serverIn("", nil, h, args...) }

func (w *world) serverIn(dir string, env []string, h *host, args ...string) error {
	c := exec.Command(args[0], args[1:]...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	log, err := os.OpenFile(filepath.Join(w.dir, h.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	c.Stdout, c.Stderr = log, log
	if err := h.onDisk(c); err != nil {
		return err
	}
	go func() { _ = c.Wait() }() // it is killed
	return nil
}

// build builds one of internal/test/stores/servers, and returns the program.
func (w *world) build(name string) (string, error) {
	out := filepath.Join(w.dir, name)
	c := exec.Command("go", "build", "-o", out, ".")
	c.Dir = filepath.Join(w.root, "internal", "test", "stores", "servers", name)
	c.Env = append(os.Environ(), "GOWORK=off")
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building internal/test/stores/servers/%s: %w: %s", name, err, text)
	}
	return out, nil
}

// within is a random duration from a to b.
func (w *world) within(a, b time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return a + time.Duration(w.rand.Int64N(int64(b-a)))
}

func (w *world) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// offset is that of a candidate's clock: within what is promised, or far beyond, ahead or
// behind.
func (w *world) offset() time.Duration {
	s := w.skew - w.skew/20
	if !w.beyond {
		return w.within(-s, s)
	}
	return time.Duration(1-2*w.intn(2)) * w.term
}

// leave has leaderelect built without the stores that no run is on.
const leave = "no_azblob,no_dynamodb,no_gcs,no_mongodb,no_s3,no_sqlite,disable_grpc_modules"

// Programs that are built into a directory, beside this one.
const (
	newerProgram       = "chaos-newer" // this program, with a newer version of the library
	leaderelectProgram = "leaderelect"
)

// buildPrograms builds what candidates run, other than this program itself.
func buildPrograms(root, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	sources, err := os.MkdirTemp("", "chaos-newer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(sources)
	overlay, err := newer.Overlay(root, sources)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-tags", "newer", "-overlay", overlay, "-o", filepath.Join(dir, newerProgram), "./internal/test/apart/chaos"},
		{"-tags", leave, "-o", filepath.Join(dir, leaderelectProgram), "./cmd/leaderelect"},
	} {
		c := exec.Command("go", append([]string{"build", "-buildvcs=false"}, args...)...)
		c.Dir = root
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w: %s", args[len(args)-1], err, text)
		}
	}
	return nil
}

// prepare sees to it that there are programs.
func (w *world) prepare() (err error) {
	if w.programs == "" {
		w.programs = w.dir
		return buildPrograms(w.root, w.dir)
	}
	w.programs, err = filepath.Abs(w.programs)
	return err
}

// person is a candidate through all its lives.
type person struct {
	*host
	w       *world
	command bool // it is a leaderelect that runs a command

	lifelines string // the directory of its machine

	mu    sync.Mutex
	newer bool // the next life is one of the newer version
	lives int
	down  bool // it is not to come again by itself
	top   int  // the process that this one has started
	stdin io.WriteCloser
	ended chan struct{}
}

// Kinds of candidates, as the names of their lives end.
const (
	byOlder   = ""
	byNewer   = "-newer"
	byCommand = "-command"
)

// kind is that of the next life.
func (p *person) kind() string {
	switch {
	case p.command:
		return byCommand
	case p.newer:
		return byNewer
	}
	return byOlder
}

// live starts the candidate's next life, with a clock of its own.
func (p *person) live() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
	return p.begin()
}

// again starts the next life after the given one, unless somebody else sees to that: as
// a supervisor does.
func (p *person) again(life int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lives == life && !p.down {
		p.w.must(p.begin())
	}
}

// revive undoes what was done to the candidate: what is stopped goes on, and if it has
// ended it begins its next life.
func (p *person) revive() {
	p.signal(syscall.SIGCONT)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
	select {
	case <-p.ended:
		p.w.must(p.begin())
	default:
	}
}

// program is what the candidate's next life runs.
func (p *person) program() (*exec.Cmd, error) {
	w := p.w
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	life := fmt.Sprintf("%s.%d%s", p.name, p.lives, p.kind())
	if p.command {
		c := exec.Command(filepath.Join(w.programs, leaderelectProgram), "run", "--id", p.name, "--term", w.term.String(), "--skew", w.skew.String(),
			"--restart-delay", "100ms", "--lifeline", p.lifelines, "--on-failure", "stepdown", "--drain", "500ms", w.store.url,
			"--", self, "work", life, w.registers.addr, p.ledger())
		c.Env = append(os.Environ(), "TMPDIR="+w.dir)
		return c, nil
	}
	if p.newer {
		self = filepath.Join(w.programs, newerProgram)
	}
	return exec.Command(self, "candidate", "-id", p.name, "-life", life, "-url", w.store.url, "-registers", w.registers.addr,
		"-term", w.term.String(), "-skew", w.skew.String(), "-offset", w.offset().String(), fmt.Sprintf("-unconditional=%v", w.blind), "-ledger", p.ledger(), "-lifeline", p.lifelines), nil
}

// begin begins a life.
func (p *person) begin() error {
	p.lives++
	c, err := p.program()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(p.w.dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	c.Stderr = log
	// Pipes of its own: what exec.Cmd makes is closed by Wait, while it is read.
	out, outW, err1 := os.Pipe()
	inR, in, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	c.Stdout, c.Stdin = outW, inR
	err = p.start(c)
	outW.Close()
	inR.Close()
	if err != nil {
		return err
	}
	p.stdin, p.ended, p.top = in, make(chan struct{}), c.Process.Pid
	go func(ended chan struct{}, life int) {
		_ = c.Wait()
		in.Close()
		close(ended)
		time.Sleep(time.Second)
		p.again(life)
	}(p.ended, p.lives)
	go p.listen(out)
	return nil
}

// listen follows who leads. A command also says by which process: when that is gone it
// leads no more.
func (p *person) listen(out io.ReadCloser) {
	defer out.Close()
	over := func() { p.w.leader.CompareAndSwap(p, nil) }
	var latest atomic.Int64
	for in := bufio.NewScanner(out); in.Scan(); {
		p.w.say("%s %s", p.name, in.Text())
		if in.Text()[0] != 'l' {
			over()
			continue
		}
		p.w.leader.Store(p)
		var number uint64
		var pid int
		if n, _ := fmt.Sscanf(in.Text(), "leads %d %d", &number, &pid); n == 2 {
			latest.Store(int64(pid))
			go func() {
				for !zombie(pid) {
					time.Sleep(10 * time.Millisecond)
				}
				if latest.Load() == int64(pid) { // else the next is at work already
					over()
				}
			}()
		}
	}
	over()
}

func (p *person) ledger() string { return filepath.Join(p.w.dir, p.name+".ledger") }

// tell gives an operator's word to a candidate. One that is stopped reads it later.
func (p *person) tell(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.stdin, format+"\n", args...) // it may just have been killed
}

// stays has the candidate not come again by itself, and returns its process, and what is
// closed when that has ended.
func (p *person) stays() (top int, ended chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	return p.top, p.ended
}

// die kills a candidate, and all that it has started.
func (p *person) die() {
	_, ended := p.stays()
	p.kill()
	<-ended
}

// leave has a candidate end in order, or kills it.
func (p *person) leave() {
	top, ended := p.stays()
	if p.command {
		_ = syscall.Kill(top, syscall.SIGTERM)
	} else {
		p.tell("leave")
	}
	select {
	case <-ended:
	case <-time.After(p.w.term):
		p.die()
	}
}
