// Package explore goes breadth first through all states of a system. An exploration ends by itself if the states are
// finite, and the history of a fault is a shortest one.
//
// A System names each state by a key: states with one key must have the same successors, and be judged alike. What is kept of a
// state that was expanded is 128 bits of its key's hash, its parent, and the step that led to it. The states themselves are
// kept for one level only, the first that was found for each key. Two keys among n have one hash with a probability of n²/2¹²⁹.
package explore

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Step is a step of a system. Its meaning is the system's.
type Step uint32

// System is what is explored. W is a state. No method changes one that it was given.
type System[W any] interface {
	// Initial returns the states in which a history may begin.
	Initial() []W
	// Worker returns what expands states, for one goroutine.
	Worker() Worker[W]
}

// Worker expands states for one goroutine.
type Worker[W any] interface {
	// Key names a state. The bytes are valid until the next call.
	Key(w W) []byte
	// Visit judges a state whose key is new. An error ends the exploration.
	Visit(w W) error
	// Expand calls emit for each step that is possible in w, with the state that it leads to. An error judges the step, and
	// ends the exploration.
	Expand(w W, emit func(s Step, next W, err error))
}

// Options are the bounds of an exploration, and how it runs. Zero is no bound.
type Options struct {
	Workers   int // default 1
	MaxStates int
	MaxTime   time.Duration
	Progress  func(Result) // called at most each ten seconds, between levels
}

// Fault is a history that ends in an error.
type Fault struct {
	Initial int // the index of the initial state
	Steps   []Step
	Err     error
}

// Result is what an exploration has seen.
type Result struct {
	States, Transitions int
	Depth               int // of the deepest level that was expanded, counted in steps
	Widest              int // the most states of a level
	Complete            bool
	Elapsed             time.Duration
	PeakMemory          int // of the process, in bytes; 0 if the system does not tell
	Fault               *Fault
}

func (r Result) String() string {
	all := "all states"
	if !r.Complete {
		all = "NOT all states"
	}
	return fmt.Sprintf("%s: %d states, %d transitions, depth %d, widest level %d, %.1f s, peak memory %d MB",
		all, r.States, r.Transitions, r.Depth, r.Widest, r.Elapsed.Seconds(), r.PeakMemory>>20)
}

// key is the hash of a state's key. The zero key is an empty slot.
type key struct{ hi, lo uint64 }

// hash folds two multiplications for each eight bytes.
func hash(b []byte) key {
	const p0, p1, p2, p3 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3, 0x589965cc75374cc3
	mix := func(a, b uint64) uint64 { h, l := bits.Mul64(a, b); return h ^ l }
	h, l := uint64(len(b))^p0, uint64(len(b))^p1
	var last [8]byte
	for len(b) > 0 {
		if len(b) < 8 {
			copy(last[:], b)
			b = last[:]
		}
		x := binary.LittleEndian.Uint64(b)
		b = b[8:]
		h, l = mix(h^x, p2)+bits.RotateLeft64(l, 23), mix(l^x^p3, p1^h|1)
	}
	k := key{mix(h^p1, l^p0|1) ^ h, mix(l^p2, h^p3|1) ^ l}
	if k == (key{}) {
		k.lo = 1
	}
	return k
}

// node is how a state was reached first.
type node struct {
	parent uint32 // noParent: step is the index of an initial state
	step   Step
}

const (
	noParent = ^uint32(0)
	shards   = 256
)

// seen are the states that were found, in shards: a hash table of keys, and the tree of parents.
type seen [shards]struct {
	sync.Mutex
	table []key
	nodes []node
	_     [64]byte
}

// add returns an id for the state, and whether it is new.
func (all *seen) add(k key, parent uint32, step Step) (id uint32, isNew bool) {
	index := uint32(k.hi % shards)
	s := &all[index]
	s.Lock()
	defer s.Unlock()
	if len(s.nodes)*4 >= len(s.table)*3 {
		old := s.table
		s.table = make([]key, max(64, len(old)*2))
		for _, k := range old {
			if k != (key{}) {
				s.table[slot(s.table, k)] = k
			}
		}
	}
	i := slot(s.table, k)
	if s.table[i] == k {
		return 0, false
	}
	s.table[i] = k
	s.nodes = append(s.nodes, node{parent, step})
	return uint32(len(s.nodes)-1)*shards + index, true
}

func slot(table []key, k key) int {
	mask := uint64(len(table) - 1)
	for i := k.lo & mask; ; i = (i + 1) & mask {
		if table[i] == k || table[i] == (key{}) {
			return int(i)
		}
	}
}

// history returns the steps to a state.
func (all *seen) history(id uint32) (initial int, steps []Step) {
	for {
		n := all[id%shards].nodes[id/shards]
		if n.parent == noParent {
			slices.Reverse(steps)
			return int(n.step), steps
		}
		steps, id = append(steps, n.step), n.parent
	}
}

// found is a state that is to be expanded.
type found[W any] struct {
	w  W
	id uint32
}

// run is an exploration.
type run[W any] struct {
	Options
	seen                seen
	begin               time.Time
	states, transitions atomic.Int64
	once                sync.Once
	failed              atomic.Bool
	id                  uint32 // of the state at which it failed
	steps               []Step // and the step after it, if that has failed
	err                 error
}

func (r *run[W]) fail(id uint32, err error, steps ...Step) {
	r.once.Do(func() {
		r.id, r.steps, r.err = id, steps, err
		r.failed.Store(true)
	})
}

// add takes in a state, and appends it to out if it is new.
func (r *run[W]) add(by Worker[W], out []found[W], parent uint32, step Step, w W) []found[W] {
	id, isNew := r.seen.add(hash(by.Key(w)), parent, step)
	if !isNew {
		return out
	}
	r.states.Add(1)
	if err := by.Visit(w); err != nil {
		r.fail(id, err)
	}
	return append(out, found[W]{w, id})
}

// goesOn reports whether no bound is reached.
func (r *run[W]) goesOn() bool {
	return !r.failed.Load() && (r.MaxTime == 0 || time.Since(r.begin) < r.MaxTime) && (r.MaxStates == 0 || r.states.Load() < int64(r.MaxStates))
}

// batch is how many states a worker takes at once.
const batch = 64

// expand makes all steps from a level. It reports whether it was cut short.
func (r *run[W]) expand(workers []Worker[W], level []found[W]) (next []found[W], cut bool) {
	var taken atomic.Int64
	var all sync.WaitGroup
	outs := make([][]found[W], len(workers))
	for i, by := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			n := int64(0)
			var out []found[W]
			for r.goesOn() {
				from := int(taken.Add(batch)) - batch
				if from >= len(level) {
					break
				}
				part := level[from:min(from+batch, len(level))]
				for j, f := range part {
					by.Expand(f.w, func(s Step, w W, err error) {
						if n++; err != nil {
							r.fail(f.id, err, s)
							return
						}
						out = r.add(by, out, f.id, s, w)
					})
					part[j] = found[W]{} // nobody needs it any more
				}
			}
			r.transitions.Add(n)
			outs[i] = out
		}()
	}
	all.Wait()
	return slices.Concat(outs...), int(taken.Load()) < len(level)
}

// Run explores a system.
func Run[W any](sys System[W], o Options) (res Result) {
	r := &run[W]{Options: o, begin: time.Now()}
	var workers []Worker[W]
	for range max(o.Workers, 1) {
		workers = append(workers, sys.Worker())
	}
	var level []found[W]
	for i, w := range sys.Initial() {
		level = r.add(workers[0], level, noParent, Step(i), w)
	}
	told, cut := r.begin, false
	for {
		res.States, res.Transitions, res.Elapsed = int(r.states.Load()), int(r.transitions.Load()), time.Since(r.begin)
		res.Widest = max(res.Widest, len(level))
		if o.Progress != nil && time.Since(told) > 10*time.Second {
			told = time.Now()
			o.Progress(res)
		}
		if res.Complete = len(level) == 0 && !cut; len(level) == 0 || cut || r.failed.Load() {
			break
		}
		if level, cut = r.expand(workers, level); len(level) > 0 && !cut {
			res.Depth++
		}
	}
	res.PeakMemory = peakMemory()
	if r.failed.Load() {
		f := &Fault{Err: r.err}
		f.Initial, f.Steps = r.seen.history(r.id)
		f.Steps = append(f.Steps, r.steps...)
		res.Fault, res.Complete = f, false
	}
	return res
}

func peakMemory() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	var kb int
	for _, line := range strings.Split(string(status), "\n") {
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
			break
		}
	}
	return kb << 10
}
