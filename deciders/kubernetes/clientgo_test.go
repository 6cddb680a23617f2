package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// What doc.go says of ReleaseOnCancel: an elector that was cut off for longer than a lease
// releases what is another's by then. A leader of ours goes on, and its next extension
// puts the Lease right again.
func TestClientGoReleasesWhatItLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, false)
		defer f.endAll()
		theirs := f.add("theirs", false)
		f.until(10 * time.Second)
		ours := f.add("ours", true)
		f.pass(5 * time.Second)
		theirs.way.sever()
		f.pass(14 * time.Second) // it leads no more, and ours not yet
		if l := f.until(30 * time.Second); l != "ours" {
			t.Fatalf("%s leads", l)
		}
		held := f.api.lease("one")
		f.api.change("one", func(l *coordinationv1.Lease) { l.Spec = bySpec("", 1, *held.Spec.LeaseTransitions) }) // as its tryRelease does
		view := ours.claim()
		f.pass(20 * time.Second)
		if l := f.api.lease("one"); *l.Spec.HolderIdentity != "ours" || *l.Spec.LeaseTransitions != *held.Spec.LeaseTransitions || ours.claim() != view {
			t.Errorf("the leadership did not outlive it: %+v", l.Spec)
		}
		theirs.way.heal()
	})
}

// What people do to the spec of a leader that is cut off (kubectl edit) does not have
// another one lead before its view is over. Afterwards somebody leads, with a greater token.
func TestEditedWhileLed(t *testing.T) {
	for name, edit := range map[string]func(spec *coordinationv1.LeaseSpec){
		"a short lease":        func(spec *coordinationv1.LeaseSpec) { spec.LeaseDurationSeconds = ref(int32(1)) },
		"a lease of no length": func(spec *coordinationv1.LeaseSpec) { spec.LeaseDurationSeconds = nil },
		"another's, and short": func(spec *coordinationv1.LeaseSpec) {
			spec.HolderIdentity, spec.LeaseDurationSeconds = ref("x"), ref(int32(1))
		},
		"another's":             func(spec *coordinationv1.LeaseSpec) { spec.HolderIdentity = ref("x") },
		"nobody's":              func(spec *coordinationv1.LeaseSpec) { spec.HolderIdentity = nil },
		"never renewed":         func(spec *coordinationv1.LeaseSpec) { spec.RenewTime = nil },
		"renewed in the future": func(spec *coordinationv1.LeaseSpec) { spec.RenewTime.Time = spec.RenewTime.AddDate(1000, 0, 0) },
		"renewed long ago":      func(spec *coordinationv1.LeaseSpec) { spec.RenewTime.Time = spec.RenewTime.AddDate(-1000, 0, 0) },
		"counted anew":          func(spec *coordinationv1.LeaseSpec) { spec.LeaseTransitions = nil },
		"counted to the end":    func(spec *coordinationv1.LeaseSpec) { spec.LeaseTransitions = ref(int32(math.MaxInt32)) },
		"wiped, but the holder": func(spec *coordinationv1.LeaseSpec) {
			*spec = coordinationv1.LeaseSpec{HolderIdentity: spec.HolderIdentity}
		},
		"wiped": func(spec *coordinationv1.LeaseSpec) { *spec = coordinationv1.LeaseSpec{} },
		// As electors of client-go leave it that have taken what one of theirs had released in
		// its leader's place.
		"taken and released": func(spec *coordinationv1.LeaseSpec) { *spec = bySpec("", 1, *spec.LeaseTransitions+1) },
		"taken for a second": func(spec *coordinationv1.LeaseSpec) { *spec = bySpec("x", 1, *spec.LeaseTransitions+1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 5, false)
				defer f.endAll()
				a := f.add("a", true)
				f.until(10 * time.Second)
				f.add("b", true)
				for renewed := *f.api.lease("one").Spec.RenewTime; f.api.lease("one").Spec.RenewTime.Equal(&renewed); {
					f.pass(20 * time.Millisecond)
				}
				f.pass(time.Second) // it has just extended its term
				a.way.sever()
				synctest.Wait()
				f.api.change("one", func(l *coordinationv1.Lease) { edit(&l.Spec) })
				f.pass(40 * time.Second)
				a.way.heal()
				f.until(20 * time.Second)
				if f.led(true) < 2 {
					t.Error("nobody has led since")
				}
			})
		})
	}
}

// The real client-go and the real API server: a leader of one kind after the other, each
// after the one before has released, or has fallen silent.
func TestMixedOnServer(t *testing.T) {
	k := stores.Kube(t)
	admin := client(t, k, "admin")
	ours := func(id string) (number leaderelection.ElectionNumber) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		elected := make(chan leaderelection.ElectionNumber, 1)
		c, err := leaderelection.Config{Decider: decider(client(t, k, "admin"), "one"), LeaderID: id, TermLength: 3 * time.Second, MaxClockSkew: 100 * time.Millisecond,
			OnElected: func(_ context.Context, v *leaderelection.TimeView) { elected <- v.ElectionNumber() }}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case number = <-elected:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s does not lead", id)
		}
		cancel()
		_ = c.Wait()
		return number
	}
	theirs := func(id string, release bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		electorOf(client(t, k, "admin"), id, 3*time.Second, release, func(context.Context) { cancel() }).Run(silently(ctx))
		if l, err := admin.CoordinationV1().Leases("default").Get(t.Context(), "one", metav1.GetOptions{}); err != nil || (*l.Spec.HolderIdentity == id) == release {
			t.Fatalf("after %s has led: %+v, %v", id, l, err)
		}
	}
	theirs("x", true)
	if n := ours("a"); n != 2 {
		t.Errorf("a leads with %d, want 2: x was the first", n)
	}
	theirs("y", false) // falls silent: ours waits for the lease
	began := time.Now()
	if n := ours("b"); n != 4 {
		t.Errorf("b leads with %d, want 4", n)
	}
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("b leads %v after y fell silent, whose lease is 3 s", took)
	}
	theirs("z", true)
	if n := ours("c"); n != 6 {
		t.Errorf("c leads with %d, want 6", n)
	}
}

// electorOf is a candidate of client-go, whose settings are to its lease as usual.
func electorOf(c clientset.Interface, id string, lease time.Duration, release bool, elected func(context.Context)) *clientgo.LeaderElector {
	e, err := clientgo.NewLeaderElector(clientgo.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Client: c.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: id},
		},
		LeaseDuration: lease, RenewDeadline: lease * 2 / 3, RetryPeriod: lease * 2 / 15, ReleaseOnCancel: release,
		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: elected, OnStoppedLeading: func() {}},
	})
	if err != nil {
		panic(err) // a setting is wrong
	}
	return e
}

// fleet is candidates of client-go, with its usual settings, and of this library, on one
// Lease, and a judge of who says that it leads.
type fleet struct {
	t      *testing.T
	api    *imitation
	random *rand.Rand
	faults bool

	mu      sync.Mutex
	members map[string]*member
	last    leaderelection.ElectionNumber // of our leaderships
	foreign bool                          // a client-go candidate has led since
	terms   map[bool]int                  // leaderships, of client-go and ours
}

// member is a process of a fleet.
type member struct {
	name  string
	ours  bool
	way   *way
	stop  func()
	ended chan struct{}
	claim func() any // the leadership that it says it has now, or nil
}

// way is a member's network.
type way struct {
	next   http.RoundTripper
	random func(n int) time.Duration
	faults bool
	skew   time.Duration // of the renewTime that a client-go candidate writes

	mu  sync.Mutex
	cut context.CancelCauseFunc // ends what is under way
	up  context.Context
}

var errCut = errors.New("the network is cut")

func (w *way) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up, w.cut = context.WithCancelCause(context.Background())
}

func (w *way) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut(errCut)
}

// RoundTrip takes its time, and loses an answer now and then.
func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	up := w.up
	w.mu.Unlock()
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(up, func() { cancel(errCut) })
	var answer *http.Response
	fail := func() (*http.Response, error) {
		stop()
		cancel(nil)
		if answer != nil {
			_ = answer.Body.Close()
		}
		return nil, context.Cause(ctx)
	}
	if !clocks.System().SleepFor(ctx, w.random(200)) {
		return fail()
	}
	var err error
	if w.skew != 0 && r.Body != nil {
		if err := w.shift(r); err != nil {
			return nil, err
		}
	}
	if answer, err = w.next.RoundTrip(r.WithContext(ctx)); err != nil {
		return nil, err
	}
	if !clocks.System().SleepFor(ctx, w.random(200)) {
		return fail()
	}
	if w.faults && w.random(100) < 3*time.Millisecond {
		cancel(errCut)
		return fail()
	}
	return answer, nil
}

// shift makes a request that of a machine whose clock is off: client-go takes no other
// clock.
func (w *way) shift(r *http.Request) error {
	var l coordinationv1.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
		return err
	}
	l.Spec.RenewTime = &metav1.MicroTime{Time: l.Spec.RenewTime.Add(w.skew)}
	data, err := json.Marshal(&l)
	r.Body = io.NopCloser(bytes.NewReader(data))
	return err
}

// draw is a number below n.
func (f *fleet) draw(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n)
}

// led is how many leaderships there were.
func (f *fleet) led(ours bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.terms[ours]
}

// add starts a member.
func (f *fleet) add(name string, ours bool) *member {
	w := &way{next: f.api, faults: f.faults, random: func(n int) time.Duration { return time.Duration(f.draw(n)) * time.Millisecond }}
	w.heal()
	ctx, cancel := context.WithCancel(f.t.Context())
	m := &member{name: name, ours: ours, way: w, stop: cancel, ended: make(chan struct{})}
	if ours {
		f.runOurs(ctx, m)
	} else {
		f.runClientGo(ctx, m)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[name] = m
	return m
}

func (f *fleet) runOurs(ctx context.Context, m *member) {
	skew := time.Duration(f.draw(2000)-1000) * time.Millisecond
	c, err := leaderelection.Config{
		Decider: decider(imitationClient(f.t, m.way), "one"), LeaderID: m.name,
		TermLength: 15 * time.Second, MaxClockSkew: time.Second, Clock: clocks.NewOffset(clocks.System(), skew),
		OnElected: func(_ context.Context, view *leaderelection.TimeView) {
			f.mu.Lock()
			defer f.mu.Unlock()
			n := view.ElectionNumber()
			if n <= f.last || f.foreign && n < f.last+2 {
				f.t.Errorf("%s leads with the token %d, after %d (and client-go between: %v)", m.name, n, f.last, f.foreign)
			}
			f.last, f.foreign = n, false
			f.terms[true]++
		},
	}.Start(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	m.claim = func() any {
		if v := c.View(); v.ValueInFuture() {
			return v
		}
		return nil
	}
	go func() {
		defer close(m.ended)
		_ = c.Wait()
	}()
}

func (f *fleet) runClientGo(ctx context.Context, m *member) {
	m.way.skew = time.Duration(f.draw(121)-60) * time.Minute // which does not matter
	var leading atomic.Value
	m.claim = func() any {
		if l, led := leading.Load().(context.Context); led && l.Err() == nil {
			return l
		}
		return nil
	}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			// See doc.go for what a release does under faults.
			electorOf(imitationClient(f.t, m.way), m.name, 15*time.Second, !f.faults, func(ctx context.Context) {
				leading.Store(ctx)
				f.mu.Lock()
				defer f.mu.Unlock()
				f.foreign = true
				f.terms[false]++
			}).Run(silently(ctx))
		}
	}()
}

// leaders are those who say that they lead: whoever said so before and after all were
// asked has led all the while.
func (f *fleet) leaders() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := map[string]any{}
	for name, m := range f.members {
		if c := m.claim(); c != nil {
			before[name] = c
		}
	}
	for name, c := range before {
		if f.members[name].claim() == c {
			all = append(all, name)
		}
	}
	return all
}

// pass lets time pass, and looks at every moment of it.
func (f *fleet) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if l := f.leaders(); len(l) > 1 {
			f.t.Fatalf("%v lead at once, at %v; the lease:\n%+v", l, time.Now(), f.api.lease("one"))
		}
	}
}

// until lets time pass until somebody leads.
func (f *fleet) until(within time.Duration) string {
	for end := time.Now().Add(within); time.Now().Before(end); f.pass(20 * time.Millisecond) {
		if l := f.leaders(); len(l) == 1 {
			return l[0]
		}
	}
	f.t.Fatalf("nobody leads after %v, at %v; the lease:\n%+v", within, time.Now(), f.api.lease("one"))
	return ""
}

// end stops a member. Its network goes first if it is to crash.
func (f *fleet) end(m *member, crash bool) {
	if crash {
		m.way.sever()
		f.pass(20 * time.Second) // by then it leads no more, by its own rules
	}
	m.stop()
	f.pass(5 * time.Second)
	<-m.ended
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, m.name)
}

func (f *fleet) endAll() {
	for _, m := range f.members {
		m.stop()
		<-m.ended
	}
}

func newFleet(t *testing.T, seed uint64, faults bool) *fleet {
	return &fleet{t: t, api: newImitation(), random: rand.New(rand.NewPCG(seed, 7)), faults: faults, members: map[string]*member{}, terms: map[bool]int{}}
}

// A mixed fleet has never two leaders by either side's rules, whose networks are cut and
// slow and lose answers, and whose members crash and are replaced by the other kind; its
// tokens only grow; and when all is well somebody leads.
func TestMixedFleet(t *testing.T) {
	clientgos, ours, seeds := 0, 0, 40
	if testing.Short() {
		seeds = 8
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, seed, true)
				defer f.endAll()
				for i := range 4 {
					f.add(fmt.Sprint("m", i), f.draw(2) == 0)
				}
				for range 25 {
					name := fmt.Sprint("m", f.draw(4))
					if l := f.leaders(); len(l) == 1 && f.draw(2) == 0 {
						name = l[0]
					}
					m := f.members[name]
					switch f.draw(5) {
					case 0:
						f.end(m, f.draw(2) == 0)
						f.add(name, f.draw(2) == 0)
					case 1, 2:
						m.way.sever()
						f.pass(time.Duration(f.draw(25)) * time.Second)
						m.way.heal()
					}
					f.pass(time.Duration(f.draw(20)) * time.Second)
				}
				f.until(time.Minute)
				clientgos += f.led(false)
				ours += f.led(true)
			})
		})
	}
	t.Logf("%d leaderships of client-go, %d of ours", clientgos, ours)
	if clientgos < seeds || ours < seeds {
		t.Error("too few to say much")
	}
}

// A fleet of client-go candidates becomes one of ours, one process after the other, and
// back again. Somebody leads soon after each, and leaseTransitions counts as people know.
func TestRollingMigration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, false)
		defer f.endAll()
		for _, name := range []string{"a", "b", "c"} {
			f.add(name, false)
		}
		leader, transitions := f.until(10*time.Second), int32(0)
		for _, ours := range []bool{true, false, true} {
			for _, name := range []string{leader, "a", "b", "c"} { // the leader first
				if f.members[name].ours == ours {
					continue
				}
				f.end(f.members[name], false)
				f.add(name, ours)
				next := f.until(10 * time.Second)
				f.pass(30 * time.Second)
				spec := f.api.lease("one").Spec
				if changed := next != leader; *spec.HolderIdentity != next || changed != (*spec.LeaseTransitions == transitions+1) || !changed && *spec.LeaseTransitions != transitions {
					t.Errorf("when %s leads after %s (transition %d) the lease says %s, %d", next, leader, transitions, *spec.HolderIdentity, *spec.LeaseTransitions)
				}
				leader, transitions = next, *spec.LeaseTransitions
			}
		}
		if f.led(true) == 0 || f.led(false) == 0 {
			t.Errorf("leaderships: %d, %d of client-go", f.led(true), f.led(false))
		}
	})
}
