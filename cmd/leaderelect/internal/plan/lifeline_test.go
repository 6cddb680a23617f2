package plan

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// machine knows which processes are dead, as a kernel does.
type machine struct {
	mu   sync.Mutex
	dead map[string]bool
	told map[string][]func()
}

// line is the lifeline of a process.
type line struct {
	*machine
	names []string
}

func (l *line) Live(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.names, name) {
		l.names = append(l.names, name)
	}
	return nil
}

func (*line) End(string) error  { return nil }
func (*line) Bury(string) error { return nil }

func (m *machine) Dead(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead[name]
}

func (m *machine) OnDeath(name string, tell func()) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told[name] = append(m.told[name], tell)
	return func() {}
}

func (l *line) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.names {
		l.dead[name] = true
		for _, tell := range l.told[name] {
			go tell()
		}
	}
}

// The campaign does what the formulas say of a process that has a lifeline, if a standby is on its machine.
func TestLifelines(t *testing.T) {
	stores.Nightly(t, "half a minute of simulation for each setting")
	for name, c := range choices() {
		t.Run(name, func(t *testing.T) {
			want := c.Work().Standby
			var took []time.Duration
			for i := range uint64(120) {
				took = append(took, c.died(t, i))
			}
			slices.Sort(took)
			got := Span{took[0], took[len(took)/2], took[len(took)-1]}
			near := want.Max - want.Min // each of the few requests is one more or less
			if got.Min < want.Min || got.Min > want.Min+near || got.Max > want.Max || got.Max < want.Max-near || (got.Median-want.Median).Abs() > near {
				t.Errorf("%v, planned %v", got, want)
			}
		})
	}
}

// died is how long nobody leads after the leader's process has died.
func (c Choice) died(t *testing.T, seed uint64) (took time.Duration) {
	m := &machine{dead: make(map[string]bool), told: make(map[string][]func())}
	join := func(t *testing.T, x *trial, store *memory.Decider) {
		x.join(t, 0, store, &line{machine: m})
		x.elected <- <-x.elected // it leads before the other comes
		x.join(t, 1, store, &line{machine: m})
	}
	c.try(t, seed, 0, join, func(x *trial, leader *actor) {
		time.Sleep(c.Term + time.Duration(x.rand.Float64()*float64(12*c.Term)))
		begin := time.Now()
		leader.fault.Store(&memory.Fault{Hang: x.gone, Err: errors.New("gone")})
		leader.line.die()
		<-x.elected
		took = time.Since(begin)
	})
	return took
}
