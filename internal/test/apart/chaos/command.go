//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runWork is the command of a leaderelect:
//
//	chaos work LIFE REGISTERS LEDGER
//
// It works on the registers for as long as it lives: that it is dead before another leads
// is the promise under test. So is what it starts, which acts, too: in a session of its
// own, and deaf to what it is asked.
func runWork(args []string) error {
	w, err := newWorker(args)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	leaf := exec.Command(self, append([]string{"leaf"}, args...)...)
	leaf.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	leaf.Stderr = os.Stderr
	if err := leaf.Start(); err != nil {
		return err
	}
	fmt.Println("leads", w.number, os.Getpid())
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	w.over = func() bool { return len(asked) > 0 }
	if !w.work() {
		return errors.New("it is not known what became of a write: let another lead")
	}
	return nil
}

// runLeaf is what the command starts.
func runLeaf(args []string) error {
	signal.Ignore(syscall.SIGTERM)
	w, err := newWorker(args)
	if err != nil {
		return err
	}
	for {
		l, _ := w.ask(act)
		w.ledger.add(l)
		time.Sleep(pace)
	}
}

func newWorker(args []string) (*worker, error) {
	number, err := strconv.ParseUint(os.Getenv("LEADERELECT_TOKEN"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("this is leaderelect's command: LEADERELECT_TOKEN: %w", err)
	}
	ledger, err := openLedger(args[2])
	return &worker{
		life: args[0], by: fmt.Sprintf("%s-%d", args[0], os.Getpid()), number: number, since: now(), registers: args[1], ledger: ledger,
		may: func() bool { return true },
	}, err
}

// tree is what a leaderelect has started, as it is now: its guard, which may still wait
// for a command, the command, and what that has started.
type tree struct {
	top                    int
	guards, commands, leaf []int
}

func treeOf(top int) tree {
	t := tree{top: top, guards: children(top)}
	for _, g := range t.guards {
		t.commands = append(t.commands, children(g)...) // or what they have left behind
	}
	for _, c := range t.commands {
		t.leaf = append(t.leaf, children(c)...)
	}
	return t
}

// below are the command and what it has started.
func (t tree) below() []int { return append(t.commands[:len(t.commands):len(t.commands)], t.leaf...) }

func (t tree) all() []int { return append(append(t.below(), t.guards...), t.top) }

// children are the processes that pid has started.
func children(pid int) (all []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread) // or it has just ended
		for _, f := range strings.Fields(string(text)) {
			if id, err := strconv.Atoi(f); err == nil {
				all = append(all, id)
			}
		}
	}
	return all
}

func send(sig syscall.Signal, pids ...int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // or it has just ended
	}
}

// commandFaults befall a leaderelect, its guard, its command, and what that has started.
// Leaderelect and its guard are not killed at once but with all the rest ("candidate killed"), as a supervisor with control groups does:
// without one, what the command has started is nobody's then.
var commandFaults = []fault{
	ofTree("leaderelect killed", func(t tree) { send(syscall.SIGKILL, t.top) }),
	ofTree("leaderelect stopped", func(t tree) { send(syscall.SIGSTOP, t.top) }),
	ofTree("guard killed", func(t tree) { send(syscall.SIGKILL, t.guards...) }),
	ofTree("guard stopped", func(t tree) { send(syscall.SIGSTOP, t.guards...) }),
	ofTree("leaderelect stopped, guard killed", func(t tree) { send(syscall.SIGSTOP, t.top); send(syscall.SIGKILL, t.guards...) }),
	ofTree("guard stopped, leaderelect killed", func(t tree) { send(syscall.SIGSTOP, t.guards...); send(syscall.SIGKILL, t.top) }),
	ofTree("guard and leaderelect stopped", func(t tree) { send(syscall.SIGSTOP, append(t.guards, t.top)...) }),
	ofTree("command killed", func(t tree) { send(syscall.SIGKILL, t.commands...) }),
	ofTree("command stopped", func(t tree) { send(syscall.SIGSTOP, t.commands...) }),
	ofTree("command's child killed", func(t tree) { send(syscall.SIGKILL, t.leaf...) }),
	ofTree("command's child stopped", func(t tree) { send(syscall.SIGSTOP, t.leaf...) }),
	ofTree("command and its child killed", func(t tree) { send(syscall.SIGKILL, t.below()...) }),
	ofTree("command and its child stopped", func(t tree) { send(syscall.SIGSTOP, t.below()...) }),
	ofTree("guard, command and child stopped", func(t tree) { send(syscall.SIGSTOP, append(t.guards, t.below()...)...) }),
	ofTree("leaderelect's whole tree stopped", func(t tree) { send(syscall.SIGSTOP, t.all()...) }),
	{"guard stopped again and again", func(w *world) func() {
		p := w.runner()
		top, _ := p.stays()
		guards := treeOf(top).guards
		done := make(chan struct{})
		go func() {
			for {
				send(syscall.SIGSTOP, guards...)
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		return func() { close(done); p.revive() }
	}},
	{"leaderelect ended", func(w *world) func() {
		p := w.runner()
		p.leave()
		return p.revive
	}},
}

// runner is the leaderelect that leads and so runs its command. If none does, one is asked
// to take over, since there is little to be done to a guard that waits; it need not get to it.
func (w *world) runner() *person {
	leads := func() *person {
		if p := w.leader.Load(); p != nil && p.command {
			return p
		}
		return nil
	}
	next := w.anybody(isCommand)
	if leads() == nil {
		w.anybody(isLibrary).tell("transfer %s", next.name)
	}
	for end := time.Now().Add(w.term); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if p := leads(); p != nil {
			w.mu.Lock()
			w.hits++
			w.mu.Unlock()
			return p
		}
	}
	return next
}

// ofTree is a fault of a leaderelect and its processes.
func ofTree(name string, do func(tree)) fault {
	return fault{name, func(w *world) func() {
		p := w.runner()
		top, _ := p.stays()
		do(treeOf(top))
		return p.revive
	}}
}
