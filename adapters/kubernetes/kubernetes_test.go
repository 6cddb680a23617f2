//go:build go1.25

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	le "github.com/c8e606e4/leaderelection"
	lekubernetes "github.com/c8e606e4/leaderelection/adapters/kubernetes"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	T = time.Second
	S = 50 * time.Millisecond

	grace = 5 * time.Second // the manager's GracefulShutdownTimeout: longer than terms
)

// operator is a replica: a candidate whose manager runs one controller, which
// needs leader election, and one runnable that does not.
type operator struct {
	id      string
	runner  *lekubernetes.Runner
	mgr     manager.Manager
	warm    chan struct{} // closed when the runnable runs that needs no leader
	led     chan le.ElectionNumber
	linger  chan struct{} // if set: how long the controller takes to stop
	over    chan bool     // the controller's ctx was cancelled: was its view still in the future?
	stopped chan error    // what Start returned
}

// always needs no leader.
type always func(context.Context) error

func (f always) Start(ctx context.Context) error { return f(ctx) }
func (always) NeedLeaderElection() bool          { return false }

// waits are a manager's options: it listens nowhere.
func waits(grace *time.Duration) manager.Options {
	return manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", GracefulShutdownTimeout: grace, Logger: logr.Discard()}
}

// managed returns a manager. There is no API server: nothing here asks for one.
func managed(t *testing.T, o manager.Options) manager.Manager {
	t.Helper()
	mgr, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, o)
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// newOperator returns one that change may change: the Config, and the manager's GracefulShutdownTimeout.
func newOperator(t *testing.T, id string, store le.RaceDecider, change ...func(*le.Config, *time.Duration)) *operator {
	t.Helper()
	grace := grace
	o := &operator{id: id, warm: make(chan struct{}), led: make(chan le.ElectionNumber, 1), over: make(chan bool, 1), stopped: make(chan error, 1)}
	cfg := le.Config{Decider: store, LeaderID: id, TermLength: T, MaxClockSkew: S}
	for _, c := range change {
		c(&cfg, &grace)
	}
	o.runner = lekubernetes.NewRunner(cfg)
	o.mgr = managed(t, o.runner.Options(waits(&grace)))
	for _, r := range []manager.Runnable{
		always(func(ctx context.Context) error { close(o.warm); <-ctx.Done(); return nil }),
		manager.RunnableFunc(func(ctx context.Context) error {
			o.led <- o.runner.View().ElectionNumber()
			<-ctx.Done()
			o.over <- o.runner.View().ValueInFuture()
			if o.linger != nil {
				<-o.linger
			}
			return nil
		}),
	} {
		if err := o.mgr.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func (o *operator) start(ctx context.Context) {
	go func() { o.stopped <- o.runner.Start(ctx, o.mgr) }()
}

// ends waits for its Start to return an error, or nil.
func (o *operator) ends(t *testing.T, want error) {
	t.Helper()
	if err := within(t, o.id+"'s Start returns", o.stopped); !errors.Is(err, want) {
		t.Errorf("%s's Start: %v, want %v", o.id, err, want)
	}
}

// within is how long anything here may take.
func within[E any](t *testing.T, what string, c <-chan E) E {
	t.Helper()
	select {
	case e := <-c:
		return e
	case <-time.After(20 * time.Second):
		t.Fatalf("not within 20 s: %s", what)
		panic("not reached")
	}
}

// not fails where something has happened already that must not.
func not[E any](t *testing.T, what string, c <-chan E) {
	t.Helper()
	select {
	case e := <-c:
		t.Fatalf("%s: %v", what, e)
	default:
	}
}

// Two replicas: controllers run on the leader alone, standbys are warm, and a
// hand-over stops the one manager before it starts the other's controllers.
func TestHandover(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := memory.NewDecider()
	a := newOperator(t, "a", d.Handle())
	a.linger = make(chan struct{})
	born := le.ElectionNumber(time.Now().Unix())
	a.start(ctx)
	first := within(t, "a leads", a.led)
	if first < born || first > le.ElectionNumber(time.Now().Unix()) {
		t.Errorf("a's leadership is %d, not the time's", first)
	}
	within(t, "a's manager says so", a.mgr.Elected())
	b := newOperator(t, "b", d.Handle())
	if b.runner.View().ValueInFuture() {
		t.Error("b has a view before it has led")
	}
	b.start(ctx)
	within(t, "b is warm", b.warm)

	if err := le.Transfer(ctx, d, "b"); err != nil {
		t.Fatal(err)
	}
	if !within(t, "a's controller is told to stop", a.over) {
		t.Error("it was told so after its view had ended")
	}
	// As long as it has not stopped, a holds the record, and b does not lead.
	for until := time.Now().Add(T / 2); time.Now().Before(until); {
		if e := d.Entry(); e.LeaderID != "a" {
			t.Fatalf("the record is %q's while a's controller still runs", e.LeaderID)
		}
		not(t, "b leads while a's controller still runs", b.led)
	}
	close(a.linger)
	if n := within(t, "b leads", b.led); n != first+1 {
		t.Errorf("b's leadership is %d", n)
	}
	a.ends(t, le.ErrResigned)
	cancel()
	b.ends(t, nil)
	if e := d.Entry(); !e.Vacant() {
		t.Errorf("not released: %+v", e)
	}
}

// A leader that is cut off from the store stops its controllers when its view
// ends, and not when client-go's elector would have noticed.
func TestCutOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := memory.NewDecider()
	mine := d.Handle()
	a, b := newOperator(t, "a", mine), newOperator(t, "b", d.Handle())
	a.start(ctx)
	first := within(t, "a leads", a.led)
	b.start(ctx)
	within(t, "b is warm", b.warm)
	cut := time.Now()
	mine.Inject(memory.LoseRequests())
	within(t, "a's controller is told to stop", a.over)
	if took := time.Since(cut); took > 5*T { // client-go's renewals would have been given 10 s
		t.Errorf("a's controller was told to stop after %v", took)
	}
	if n := within(t, "b leads", b.led); n != first+1 {
		t.Errorf("b's leadership is %d", n)
	}
	if err := within(t, "a's Start returns", a.stopped); !errors.Is(err, le.ErrExpired) && !errors.Is(err, le.ErrOusted) {
		t.Errorf("a's Start: %v", err)
	}
	if a.runner.View().ValueInFuture() {
		t.Error("a's view is in the future while b leads")
	}
	cancel()
	b.ends(t, nil)
}

// A controller that fails ends the manager, the campaign and Start, which returns
// its error; the record is released.
func TestManagerFails(t *testing.T) {
	d := memory.NewDecider()
	a := newOperator(t, "a", d)
	broken := errors.New("broken")
	if err := a.mgr.Add(manager.RunnableFunc(func(context.Context) error { return broken })); err != nil {
		t.Fatal(err)
	}
	a.start(t.Context())
	a.ends(t, broken)
	if e := d.Entry(); !e.Vacant() || e.ElectionNumber == le.NoElections {
		t.Errorf("not released: %+v", e)
	}
}

// A standby stops when its ctx ends, having led nothing.
func TestStandbyStops(t *testing.T) {
	d := memory.NewDecider()
	d.Replace(&le.RaceEntry{LeaderID: "other", ElectionNumber: 7, TermLength: time.Hour, TermExpiry: time.Now().Add(time.Hour)})
	ctx, cancel := context.WithCancel(t.Context())
	a := newOperator(t, "a", d)
	a.start(ctx)
	within(t, "a is warm", a.warm)
	cancel()
	a.ends(t, nil)
	not(t, "it led", a.led)
}

// What is wrong is told at once, and a store that refuses for good ends all.
func TestRefusals(t *testing.T) {
	d := memory.NewDecider()
	wrong := lekubernetes.NewRunner(le.Config{Decider: d, LeaderID: "a", OnElected: func(context.Context, *le.TimeView) {}})
	if err := wrong.Start(t.Context(), nil); !errors.Is(err, le.ErrConfig) || !strings.Contains(err.Error(), "OnElected must be nil") {
		t.Errorf("with OnElected: %v", err)
	}
	if err := lekubernetes.NewRunner(le.Config{LeaderID: "a"}).Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "Decider is nil") {
		t.Errorf("without a Decider: %v", err)
	}
	mine := d.Handle()
	mine.Inject(memory.Always(memory.Fault{Err: fmt.Errorf("%w: no such bucket", le.ErrPermanent)}))
	a := newOperator(t, "a", mine)
	a.start(t.Context())
	a.ends(t, le.ErrPermanent)
	if err := a.runner.Start(t.Context(), a.mgr); err == nil || !strings.Contains(err.Error(), "starts once") {
		t.Errorf("the second Start: %v", err)
	}
}

// A manager that was not made with this Runner's Options would run its controllers on
// a standby: it is refused before anything of it runs.
func TestManagerWithoutOptions(t *testing.T) {
	runner := lekubernetes.NewRunner(le.Config{Decider: memory.NewDecider(), LeaderID: "a", TermLength: T, MaxClockSkew: S})
	other := lekubernetes.NewRunner(le.Config{Decider: memory.NewDecider(), LeaderID: "a", TermLength: T, MaxClockSkew: S})
	plain, needs := waits(nil), true
	explicit := plain
	explicit.Controller.NeedLeaderElection = &needs
	for what, options := range map[string]manager.Options{"no Options": plain, "another Runner's": other.Options(plain), "set by hand": explicit} {
		mgr := managed(t, options)
		ran := make(chan struct{}, 1)
		if err := mgr.Add(manager.RunnableFunc(func(context.Context) error { ran <- struct{}{}; return nil })); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := runner.Start(ctx, mgr)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "runner.Options(options)") {
			t.Errorf("%s: %v", what, err)
		}
		not(t, what+": a controller has run", ran)
	}
	// What the user says of controllers is kept.
	needs = false
	if kept := other.Options(explicit).Controller.NeedLeaderElection; kept == nil || *kept {
		t.Error("NeedLeaderElection was changed")
	}
}

// What contradicts the manager's options is refused before anything runs.
func TestContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		grace *time.Duration
		drain time.Duration
		want  string // of the error; empty: it is taken
	}{
		"the manager's default, and less": {nil, 29 * time.Second, "shorter than the manager's GracefulShutdownTimeout (30s)"},
		"less than the manager waits":     {ref(time.Minute), 59 * time.Second, "leave DrainTimeout out"},
		"for ever, and less":              {ref(-time.Second), time.Hour, "leave DrainTimeout out"},
		"no waiting":                      {ref(time.Duration(0)), 0, "does not wait for its controllers"},
		"as long":                         {ref(time.Minute), time.Minute, ""},
		"as the manager waits":            {ref(time.Minute), 0, ""},
		"for ever":                        {ref(-time.Second), 0, ""},
		"the manager's default":           {nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			runner := lekubernetes.NewRunner(le.Config{Decider: memory.NewDecider(), LeaderID: "a", TermLength: T, MaxClockSkew: S, DrainTimeout: c.drain})
			mgr := managed(t, runner.Options(waits(c.grace)))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := runner.Start(ctx, mgr)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v", err)
			}
		})
	}
}

func ref[T any](v T) *T { return &v }

// handsOver has a lead, whose controller lingers, and asks it to hand over to b.
func handsOver(t *testing.T, ctx context.Context, d *memory.Decider, a, b *operator) {
	t.Helper()
	a.linger = make(chan struct{})
	a.start(ctx)
	within(t, "a leads", a.led)
	b.start(ctx)
	within(t, "b is warm", b.warm)
	if err := le.Transfer(ctx, d, "b"); err != nil {
		t.Fatal(err)
	}
	within(t, "a's controller is told to stop", a.over)
}

// The lease is kept for as long as the manager waits for its controllers, which is longer than a
// term here, also if nothing but the manager's option says so.
func TestDrainsAsLongAsTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := memory.NewDecider()
		a, b := newOperator(t, "a", d.Handle()), newOperator(t, "b", d.Handle())
		handsOver(t, ctx, d, a, b)
		time.Sleep(grace - T/10)
		not(t, "b leads while a's controller still runs", b.led)
		close(a.linger)
		within(t, "b leads", b.led)
		a.ends(t, le.ErrResigned)
		cancel()
		b.ends(t, nil)
	})
}

// Controllers that the manager has given up still run until the process ends: Start returns
// for that, and the lease is not released.
func TestAbandonedControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drain = 2 * grace
		ctx, cancel := context.WithCancel(t.Context())
		d := memory.NewDecider()
		a, b := newOperator(t, "a", d.Handle(), func(c *le.Config, _ *time.Duration) { c.DrainTimeout = drain }), newOperator(t, "b", d.Handle())
		handsOver(t, ctx, d, a, b)
		asked := time.Now()
		a.ends(t, context.DeadlineExceeded)
		if took := time.Since(asked); took > grace+T/10 {
			t.Errorf("a's Start has returned after %v", took)
		}
		within(t, "b leads", b.led)
		if took := time.Since(asked); took < drain {
			t.Errorf("b leads after %v, while a's process could hold the lease for %v", took, drain)
		}
		close(a.linger)
		cancel()
		b.ends(t, nil)
	})
}

// A leader that has lost the record does not wait for its controllers: Start returns the cause at once, so
// that the process ends, as with controller-runtime's own election. That the manager would wait for
// ever makes no difference.
func TestLostLeadershipEndsStart(t *testing.T) {
	for name, wait := range map[string]time.Duration{"a while": grace, "for ever": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				d := memory.NewDecider()
				a := newOperator(t, "a", d.Handle(), func(_ *le.Config, grace *time.Duration) { *grace = wait })
				a.linger = make(chan struct{})
				a.start(ctx)
				within(t, "a leads", a.led)
				e := d.Entry()
				e.LeaderID, e.Incarnation, e.ElectionNumber, e.Extension = "another", "another's", e.ElectionNumber+1, 0
				e.TermExpiry = time.Now().Add(T)
				d.Replace(e)
				took := time.Now()
				a.ends(t, le.ErrOusted)
				if took := time.Since(took); took > time.Second {
					t.Errorf("a's Start has returned after %v", took)
				}
				close(a.linger)
				cancel()
				synctest.Wait()
				if e := d.Entry(); e.LeaderID != "another" {
					t.Errorf("the record is %+v", e)
				}
			})
		})
	}
}
