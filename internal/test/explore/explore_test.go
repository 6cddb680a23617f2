package explore

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// jugs are two jugs of 3 and 5 liters, which can be filled, emptied, and poured into each other.
type jugs struct{ never int } // no jug may have so much

type liters [2]int

var sizes = liters{3, 5}

func (j jugs) Initial() []liters      { return []liters{{}} }
func (j jugs) Worker() Worker[liters] { return j }
func (j jugs) Key(w liters) []byte    { return fmt.Append(nil, w) }
func (j jugs) Visit(w liters) error   { return nil }
func (j jugs) judge(w liters) (e error) {
	if slices.Contains(w[:], j.never) {
		e = errors.New("it has so much")
	}
	return e
}

// Step 0 and 1 fill a jug, 2 and 3 empty it, 4 and 5 pour it into the other one.
func (j jugs) Expand(w liters, emit func(Step, liters, error)) {
	for s := range 6 {
		n, i := w, s%2
		switch s / 2 {
		case 0:
			n[i] = sizes[i]
		case 1:
			n[i] = 0
		case 2:
			moved := min(n[i], sizes[1-i]-n[1-i])
			n[i], n[1-i] = n[i]-moved, n[1-i]+moved
		}
		emit(Step(s), n, j.judge(n))
	}
}

// The two jugs have 16 states: one of them is always full or empty.
func TestAllStates(t *testing.T) {
	for workers := 1; workers <= 4; workers++ {
		r := Run(jugs{never: -1}, Options{Workers: workers})
		if !r.Complete || r.States != 16 || r.Transitions != 16*6 || r.Depth != 7 || r.Fault != nil {
			t.Errorf("%d workers: %v", workers, r)
		}
	}
}

// Four liters take six steps: fill 5, pour, empty 3, pour, fill 5, pour.
func TestShortestHistory(t *testing.T) {
	for workers := 1; workers <= 4; workers++ {
		r := Run(jugs{never: 4}, Options{Workers: workers})
		if r.Complete || r.Fault == nil || !slices.Equal(r.Fault.Steps, []Step{1, 5, 2, 5, 1, 5}) || r.Fault.Err == nil {
			t.Errorf("%d workers: %v, %+v", workers, r, r.Fault)
		}
	}
}

func TestBounds(t *testing.T) {
	if r := Run(jugs{never: -1}, Options{MaxStates: 5}); r.Complete || r.States < 5 || r.States == 16 {
		t.Error(r)
	}
	if r := Run(endless{}, Options{MaxTime: time.Millisecond, Workers: 2}); r.Complete || r.Depth == 0 {
		t.Error(r)
	}
}

// endless counts. It visits a fault at 1000.
type endless struct{}

func (endless) Initial() []int                            { return []int{7, 9} }
func (e endless) Worker() Worker[int]                     { return e }
func (endless) Key(n int) []byte                          { return fmt.Append(nil, n) }
func (endless) Expand(n int, emit func(Step, int, error)) { emit(Step(n), n+2, nil) }
func (endless) Visit(n int) (err error) {
	if n == 1001 {
		err = errors.New("reached")
	}
	return err
}

// A state may be judged when it is visited, and a history may begin in several states.
func TestVisited(t *testing.T) {
	r := Run(endless{}, Options{})
	if f := r.Fault; f == nil || f.Initial != 1 || len(f.Steps) != 496 || f.Steps[0] != 9 {
		t.Errorf("%v, %+v", r, r.Fault)
	}
}

// The hash tells keys apart that differ in a byte, or in their length.
func TestHash(t *testing.T) {
	all := map[key]string{}
	for n := range 40 {
		for i := range n + 1 {
			b := make([]byte, n)
			if i < n {
				b[i] = 1
			}
			k := hash(b)
			if o, ok := all[k]; ok {
				t.Errorf("%v and %s", b, o)
			}
			all[k] = fmt.Sprint(b)
		}
	}
}
