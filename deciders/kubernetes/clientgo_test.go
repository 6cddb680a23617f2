//go:build go1.25

package kubernetes_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/c8e606e4/leaderelection"
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
		clientgo.RunOrDie(silently(ctx), clientgo.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Client: client(t, k, "admin").CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: id}},
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 400 * time.Millisecond, ReleaseOnCancel: release,
			Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(context.Context) { cancel() }, OnStoppedLeading: func() {}},
		})
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
