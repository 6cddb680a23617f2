//go:build linux

// Command chaos holds an election on a real store whose servers, candidates, links and
// clocks are made to fail, and judges it from outside.
//
//	go run ./internal/test/apart/chaos -store etcd -minutes 20
//
// Each server and each candidate is a process in a network namespace of its own. All
// packets pass through this program, which cuts links, one way or both, delays and loses
// packets. It kills and stops processes, has the servers' disks slow or stuck, sets the
// candidates' clocks within MaxClockSkew, and asks for transfers and resets as an operator
// would. Now and then all is mended, and it is measured how long it takes until somebody leads.
//
// Some candidates are programs of the library. Each of these may come again as a newer
// version of it, whose record has a field more, and be rolled back. Others are leaderelects
// that run a command, which starts another process. Leaderelect, its guard, the command
// and its child are killed and stopped, each by itself and together.
//
// The judge knows nothing of the library. Whoever leads writes down each act, with the
// time before and after it asked its view: no act of an earlier leadership may come after
// one of a later one, and tokens must grow. And the leader works on registers behind a
// fence, and answers reads of them from its memory: what clients were told must be
// linearizable (github.com/anishathalye/porcupine). A command asks nothing: it acts as long
// as it lives, and so does its child. What a newer version wrote must be handed on.
//
// A run that cannot fail proves nothing. With -unconditional the candidates' writes are not
// conditional, and -store redis-async is a Redis that confirms a write before a replica has
// it: there must be overlaps, and -overlap wants to see one. Redis-less is one of which one
// of two replicas must have it, and repeats a token now and then. With -beyond clocks are a term
// ahead or behind, which the promise does not cover.
//
// It needs Linux 5.19, root, iproute2 and /dev/net/tun, and the store's programs.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// settings are the flags.
type settings struct {
	name    string
	root    string
	minutes float64
	seed    uint64
	people  int
	term    time.Duration
	skew    time.Duration
	beyond  bool
	blind   bool
	overlap bool

	commands int
	only     *regexp.Regexp
	programs string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "candidate":
			return runCandidate(args[1:])
		case "work":
			return runWork(args[1:])
		case "leaf":
			return runLeaf(args[1:])
		case "disk":
			return runOnDisk(args[1:])
		case "build":
			return buildPrograms(".", args[1])
		case "registers":
			return serveRegisters(args[1])
		case "dump":
			return dump(args[1])
		}
	}
	w, dir, verbose := parse(args)
	if w.commands >= w.people {
		return fmt.Errorf("-commands is %d, and must be less than -candidates (%d): clocks, transfers and versions are of the others", w.commands, w.people)
	}
	w.rand = rand.New(rand.NewPCG(w.seed, 0))
	if w.dir = dir; w.dir == "" {
		var err error
		if w.dir, err = os.MkdirTemp("", "chaos"); err != nil {
			return err
		}
		defer os.RemoveAll(w.dir)
	}
	var err error
	for i := range w.lifelines {
		if w.lifelines[i], err = os.MkdirTemp("/dev/shm", "chaos"); err != nil {
			return err
		}
		defer os.RemoveAll(w.lifelines[i])
	}
	if w.dir, err = filepath.Abs(w.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(w.dir, 0o755); err != nil { // servers have users of their own
		return err
	}
	log, err := os.Create(filepath.Join(w.dir, "chaos.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	if w.log = log; verbose {
		w.log = io.MultiWriter(log, os.Stderr)
	}
	return w.play()
}

// parse reads the flags.
func parse(args []string) (w *world, dir string, verbose bool) {
	w = &world{begun: time.Now(), net: newNetwork(), faults: map[string]int{}}
	f := flag.NewFlagSet("chaos", flag.ExitOnError)
	f.StringVar(&w.name, "store", "etcd", "the store: "+strings.Join(storeNames(), ", "))
	f.Float64Var(&w.minutes, "minutes", 2, "how long faults are made")
	f.Uint64Var(&w.seed, "seed", rand.Uint64(), "what is drawn by")
	f.IntVar(&w.people, "candidates", 5, "how many candidates")
	f.IntVar(&w.commands, "commands", 2, "how many of them are leaderelects that run a command")
	f.DurationVar(&w.term, "term", 3*time.Second, "TermLength")
	f.DurationVar(&w.skew, "skew", 300*time.Millisecond, "MaxClockSkew; the candidates' clocks are off by up to this")
	f.BoolVar(&w.beyond, "beyond", false, "set clocks a term ahead or behind")
	f.BoolVar(&w.blind, "unconditional", false, "a write that has lost its race is made all the same")
	f.BoolVar(&w.overlap, "overlap", false, "there must be an overlap: fail if none is found")
	f.Func("faults", "make only those whose names match this regular expression: \"guard|leaderelect\", \"disk\", \"version\"", func(s string) (err error) {
		w.only, err = regexp.Compile(s)
		return err
	})
	f.StringVar(&w.root, "root", ".", "the root of the source tree, for the programs that are built")
	f.StringVar(&w.programs, "programs", "", "where \"chaos build DIR\" has built what candidates run; empty: it is built now")
	f.StringVar(&dir, "dir", "", "where to leave logs and ledgers; empty: nowhere")
	f.BoolVar(&verbose, "v", false, "tell of each fault and each leadership")
	_ = f.Parse(args) // or it exits
	return w, dir, verbose
}

// must is for what the schedule cannot go on without.
func (w *world) must(err error) {
	if err != nil {
		w.say("%v", err)
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// promise is for how long nobody may lead after trouble is over, but for the store's own
// time to come back: a whole term, and the clocks' margins.
func (w *world) promise() time.Duration { return w.term + 3*w.skew }

// patience is how long is waited for it, with the store's own time.
func (w *world) patience() time.Duration { return w.promise() + 30*time.Second }

func (w *world) play() error {
	of, known := setups[w.name]
	if !known {
		return fmt.Errorf("no store is called %q: there are %s", w.name, strings.Join(storeNames(), ", "))
	}
	if err := w.prepare(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if w.registers, err = w.net.add("registers"); err != nil {
		return err
	}
	if err := w.server(w.registers, self, "registers", w.registers.addr); err != nil {
		return err
	}
	if err = w.begin(of); err != nil {
		return fmt.Errorf("starting %s: %w", w.name, err)
	}
	if len(w.candidateFaults()) == 0 && len(w.storeFaults()) == 0 {
		return fmt.Errorf("no fault is called %q", w.only)
	}
	for i := range w.people {
		h, err := w.net.add(fmt.Sprintf("c%d", i))
		if err != nil {
			return err
		}
		p := &person{host: h, w: w, command: i >= w.people-w.commands, newer: i%2 == 1, lifelines: w.lifelines[i/2%2]}
		w.candidates = append(w.candidates, p)
		if err := p.live(); err != nil {
			return err
		}
	}
	defer func() {
		for _, h := range append(w.all(), append(w.store.nodes, w.registers)...) {
			h.kill()
		}
	}()
	if !w.led(2 * time.Minute) {
		return fmt.Errorf("nobody leads, before anything was done: see the logs (-dir)")
	}
	var calms []calm
	w.begun = time.Now()
	for end := w.begun.Add(time.Duration(w.minutes * float64(time.Minute))); time.Now().Before(end); {
		w.storm(min(time.Until(end), w.within(3*w.term, 10*w.term)))
		c := calm{from: now()}
		w.say("calm")
		if !w.led(w.patience()) {
			w.say("nobody leads")
		}
		time.Sleep(w.term)
		c.to = now()
		calms = append(calms, c)
	}
	return w.judge(calms)
}

// led waits until somebody leads.
func (w *world) led(patience time.Duration) bool {
	for end := time.Now().Add(patience); w.leader.Load() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// judge says what was found.
func (w *world) judge(calms []calm) error {
	var all []line
	for _, p := range w.candidates {
		p.die()
		lines, err := readLedger(p.ledger())
		if err != nil {
			return err
		}
		all = append(all, lines...)
	}
	held, err := w.held()
	if err != nil {
		return err
	}
	rs, found := leaderships(all)
	found = append(found, forgotten(all)...)
	ops, wrong := linearizable(all, held)
	took, never := back(all, calms)
	fmt.Printf("%s: %.1f minutes, %d faults, %d leaderships, %d acts, %d operations on registers, %d overlaps, repeated tokens or forgotten fields, %d registers wrong\n",
		w.name, w.minutes, total(w.faults), len(rs), len(all), ops, len(found), len(wrong))
	older, newer, command := kinds(rs)
	fmt.Printf("leaderships of this version %d, of a newer one %d, of commands %d; %d faults befell a command that led\n", older, newer, command, w.hits)
	if len(took) > 0 {
		fmt.Printf("after trouble somebody acts in %v (median of %d), %v at the most; the promise is %v and the store's own time; longest gap in a calm after that %v\n",
			took[len(took)/2].Round(time.Millisecond), len(took), took[len(took)-1].Round(time.Millisecond), w.promise(), gap(all, calms).Round(time.Millisecond))
	}
	fmt.Printf("candidates had proof %d times that a leader was dead\n", w.proofs())
	fmt.Printf("the servers waited for their disks %d times\n", w.syncs())
	fmt.Printf("faults: %s\nseed %d, term %v, skew %v, %d candidates\n", names(w.faults), w.seed, w.term, w.skew, w.people)
	found = append(found, wrong...)
	for _, s := range found[:min(len(found), 20)] {
		fmt.Println(s)
	}
	switch {
	case never > 0 && !w.overlap:
		return fmt.Errorf("after %d of %d troubles nobody led within %v", never, len(calms), w.patience())
	case len(found) > 0 && !w.overlap:
		return fmt.Errorf("the promise is broken")
	case len(found) == 0 && w.overlap:
		return fmt.Errorf("no overlap was found, though there should be some: this run proves nothing")
	}
	return nil
}

// syncs is how often the store's servers have waited for their disks.
func (w *world) syncs() (made int) {
	for _, n := range w.store.nodes {
		made += n.disk.made()
	}
	return made
}

// held is what the registers hold at the end.
func (w *world) held() (all content, err error) {
	self, err := os.Executable()
	if err != nil {
		return all, err
	}
	file := filepath.Join(w.dir, "registers.json")
	if err := w.registers.run(exec.Command("sh", "-c", `"$0" dump "$1" >"$2"`, self, w.registers.addr, file)); err != nil {
		return all, err
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

func total(faults map[string]int) (n int) {
	for _, k := range faults {
		n += k
	}
	return n
}
