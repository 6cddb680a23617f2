package kubernetes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func ref[T any](v T) *T { return &v }

var renewed = time.Date(2026, 11, 22, 14, 0, 0, 123456000, time.UTC)

// bySpec is a spec as client-go writes it.
func bySpec(holder string, seconds, transitions int32) coordinationv1.LeaseSpec {
	at := &metav1.MicroTime{Time: renewed}
	return coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions, AcquireTime: at, RenewTime: at}
}

// change writes a Lease as somebody does who knows nothing of the record in it.
func (s *imitation) change(name string, by func(l *coordinationv1.Lease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[name].DeepCopy()
	if l == nil {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "made"}}
	}
	by(l)
	s.put("MODIFIED", l)
}

// What client-go has written is understood, whether or not a record of ours is in the
// Lease still: here that of leadership 7, held by "a", whose term of 15 s is kept.
func TestForeign(t *testing.T) {
	const ours = -1 // the number, if the record in the annotation counts
	for name, c := range map[string]struct {
		fresh  bool // there was no record before
		change func(l *coordinationv1.Lease)
		number int
		holder string
	}{
		"as it was":                           {false, func(*coordinationv1.Lease) {}, ours, "a"},
		"labelled":                            {false, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": "y"} }, ours, "a"},
		"taken":                               {false, func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 15, 7) }, 8, "x"},
		"taken twice":                         {false, func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 15, 8) }, 9, "x"},
		"taken for a second":                  {false, func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 1, 7) }, 8, "x"},
		"taken for a minute":                  {false, func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 60, 7) }, 8, "x"},
		"renewed by its name":                 {false, func(l *coordinationv1.Lease) { l.Spec = bySpec("a", 15, 6) }, 8, "a"},
		"taken by one elsewhere":              {false, func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 15, 0) }, 8, "x"},
		"taken and released":                  {false, func(l *coordinationv1.Lease) { l.Spec = bySpec("", 1, 7) }, 8, ""},
		"released by one who did not hold it": {false, func(l *coordinationv1.Lease) { l.Spec = bySpec("", 1, 6) }, ours, "a"},
		"the holder wiped":                    {false, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil }, ours, "a"},
		"annotations dropped, taken":          {false, func(l *coordinationv1.Lease) { l.Annotations, l.Spec = nil, bySpec("x", 15, 7) }, 8, "x"},
		"annotations dropped":                 {false, func(l *coordinationv1.Lease) { l.Annotations = nil }, 7, "a"},
		"client-go's first":                   {true, func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 15, 0) }, 1, "x"},
		"client-go's, released":               {true, func(l *coordinationv1.Lease) { l.Spec = bySpec("", 1, 4) }, 5, ""},
		"made beforehand":                     {true, func(*coordinationv1.Lease) {}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := imitated(t)
			if !c.fresh {
				feedtest.Write(t, d, 7, nil)
			}
			before, led := s.lease("one"), feedtest.Read(t, d)
			s.change("one", c.change)
			l := s.lease("one")
			e := feedtest.Read(t, d)
			if c.number == ours {
				if e.ElectionNumber != 7 || e.LeaderID != c.holder || e.Incarnation != "i" || e.Unsynchronized {
					t.Errorf("%+v", e)
				}
			} else {
				want := &leaderelection.RaceEntry{LeaderID: c.holder, ElectionNumber: leaderelection.ElectionNumber(c.number)}
				if c.number > 0 {
					want.Incarnation = kubernetes.ClientGo
					fmt.Sscan(l.ResourceVersion, &want.Extension)
					want.TermExpiry = l.Spec.RenewTime.Time
				}
				kept := led.TermLength
				if l.Annotations == nil {
					kept = 0
				}
				if c.holder != "" {
					want.Unsynchronized = true
					want.TermLength = max(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second, kept)
					want.TermExpiry = l.Spec.RenewTime.Add(want.TermLength)
				} else if kept > 0 {
					want.TermExpiry, want.Hold = led.TermExpiry.Add(-kept), kept
				}
				got := *e
				got.Token = nil
				if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", *want) {
					t.Errorf("got  %+v\nwant %+v", got, *want)
				}
			}
			// A write over it goes by what was read, and counts on.
			next := max(e.ElectionNumber, 7) + 1
			feedtest.Write(t, d, uint64(next), e.Token)
			got := s.lease("one")
			was := int32(0)
			if before != nil {
				was = *before.Spec.LeaseTransitions
			}
			if n := *got.Spec.LeaseTransitions; n <= was || n < int32(next)-1 || *got.Spec.HolderIdentity != "a" {
				t.Errorf("written over: %+v", got.Spec)
			}
			if e := feedtest.Read(t, d); e.ElectionNumber != next || e.Incarnation != "i" {
				t.Errorf("written over, it reads %+v", e)
			}
		})
	}
}

// What cannot be understood is an error, and left alone.
func TestUnusableLease(t *testing.T) {
	for name, change := range map[string]func(l *coordinationv1.Lease){
		"no JSON":          func(l *coordinationv1.Lease) { l.Annotations["leaderelection/record"] = "hello" },
		"no record":        func(l *coordinationv1.Lease) { l.Annotations["leaderelection/record"] = "" },
		"another's JSON":   func(l *coordinationv1.Lease) { l.Annotations["leaderelection/record"] = `{"a":1}` },
		"half a record":    func(l *coordinationv1.Lease) { delete(l.Annotations, "leaderelection/written") },
		"a lease for ages": func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 400*24*3600, 9) },
		"a negative lease": func(l *coordinationv1.Lease) { l.Spec = bySpec("x", -5, 9) },
		"no name":          func(l *coordinationv1.Lease) { l.Spec = bySpec("*", 15, 9) },
		"damaged, taken": func(l *coordinationv1.Lease) {
			l.Annotations["leaderelection/record"], l.Spec = "hello", bySpec("x", 15, 9)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := imitated(t)
			feedtest.Write(t, d, 7, nil)
			s.change("one", change)
			_, err := d.ReadCurrent(t.Context())
			feedtest.Permanent(t, err, "lease default/one")
			if n := feedtest.Next(t, feedtest.Follow(t, d)); n.RaceEntry != nil || !errors.Is(n.Err, leaderelection.ErrPermanent) {
				t.Errorf("the feed yields %+v", n)
			}
			if s.writes != 1 {
				t.Errorf("%d writes", s.writes)
			}
			if err := leaderelection.Reset(t.Context(), d, 30, false); err == nil || s.writes != 1 {
				t.Errorf("reset unforced, with %d writes: %v", s.writes, err)
			}
			if err := leaderelection.Reset(t.Context(), d, 30, true); err != nil {
				t.Fatal(err)
			}
			if e := feedtest.Read(t, d); !e.Vacant() || e.ElectionNumber != 30 || s.writes != 2 {
				t.Errorf("after %d writes it reads %+v", s.writes, e)
			}
			if l := s.lease("one"); *l.Spec.HolderIdentity != "" || *l.Spec.LeaseTransitions < 29 {
				t.Errorf("the Lease is %+v", l.Spec)
			}
		})
	}
}

// A damaged Lease that changes meanwhile is judged again.
func TestResetOfWhatHasChanged(t *testing.T) {
	s, d := imitated(t)
	feedtest.Write(t, d, 7, nil)
	s.change("one", func(l *coordinationv1.Lease) { delete(l.Annotations, "leaderelection/written") })
	_, err := d.ReadCurrent(t.Context())
	var damage *leaderelection.DamagedRecordError
	if !errors.As(err, &damage) {
		t.Fatal(err)
	}
	s.change("one", func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 15, 9) })
	if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{ElectionNumber: 30, TermLength: time.Second, Token: damage.Token}); !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("over what has changed: %v", err)
	}
}

// What kubectl get lease shows of each kind of write, and what client-go goes by.
func TestWritten(t *testing.T) {
	s := newImitation()
	s.change("one", func(l *coordinationv1.Lease) {
		l.Labels, l.Annotations = map[string]string{"app": "web"}, map[string]string{"note": "kept"}
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "u"}}
	})
	d := decider(imitationClient(t, s), "one")
	at := feedtest.Read(t, d).Token
	write := func(number, extension uint64, holder string, begun time.Time, change ...func(*leaderelection.RaceEntry)) coordinationv1.LeaseSpec {
		t.Helper()
		e := &leaderelection.RaceEntry{LeaderID: holder, ElectionNumber: leaderelection.ElectionNumber(number), Extension: extension,
			TermLength: 15 * time.Second, TermExpiry: begun.Add(15 * time.Second), Incarnation: "i", Token: at}
		if holder == "" {
			e.TermExpiry = begun
		}
		for _, c := range change {
			c(e)
		}
		var err error
		if at, err = d.WriteEntry(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		return s.lease("one").Spec
	}
	is := func(what string, spec coordinationv1.LeaseSpec, holder string, seconds, transitions int32, acquired, renewed time.Time) {
		t.Helper()
		if *spec.HolderIdentity != holder || *spec.LeaseDurationSeconds != seconds || *spec.LeaseTransitions != transitions ||
			!spec.AcquireTime.Time.Equal(acquired) || !spec.RenewTime.Time.Equal(renewed) {
			data, _ := json.Marshal(spec)
			t.Errorf("%s: %s\nwant %s, %d s, %d, acquired %v, renewed %v", what, data, holder, seconds, transitions, acquired, renewed)
		}
	}
	sec := func(s float64) time.Time {
		return renewed.Truncate(time.Second).Add(time.Duration(s * float64(time.Second)))
	}
	is("acquired", write(1, 0, "a", sec(0.1)), "a", 16, 0, sec(0.1), sec(0.1))
	is("extended", write(1, 1, "a", sec(7.2)), "a", 16, 0, sec(0.1), sec(7.2))
	is("extended in the same second", write(1, 2, "a", sec(7.9)), "a", 16, 0, sec(0.1), sec(8))
	is("asked to hand over", write(1, 3, "a", sec(7.9), func(e *leaderelection.RaceEntry) { e.Successor = "b" }), "a", 16, 0, sec(0.1), sec(8))
	is("extended by a clock that was set back", write(1, 4, "a", sec(2)), "a", 16, 0, sec(0.1), sec(9))
	is("released for another", write(1, 5, "", sec(35), func(e *leaderelection.RaceEntry) { e.Successor = "b" }), "", 1, 0, sec(20), sec(20))
	is("released", write(1, 6, "", sec(21)), "", 1, 0, sec(21), sec(21))
	is("the next leads", write(2, 0, "b", sec(30)), "b", 16, 1, sec(30), sec(30))
	is("after skipped numbers", write(9, 0, "c", sec(50)), "c", 16, 8, sec(50), sec(50))
	is("of a long term", write(10, 0, "d", sec(60), func(e *leaderelection.RaceEntry) {
		e.TermLength, e.TermExpiry = 100*time.Second, sec(160)
	}), "d", 101, 9, sec(60), sec(60))
	is("of a short one", write(11, 0, "d", sec(60), func(e *leaderelection.RaceEntry) {
		e.TermLength, e.TermExpiry = time.Millisecond, sec(60.001)
	}), "d", 1, 10, sec(60), sec(60))
	is("of a number beyond what Kubernetes counts to", write(1<<40, 0, "d", sec(70)), "d", 16, 11, sec(70), sec(70))
	if l := s.lease("one"); l.Labels["app"] != "web" || l.Annotations["note"] != "kept" || len(l.OwnerReferences) != 1 {
		t.Errorf("what is others' was not kept: %+v", l.ObjectMeta)
	}
}

// A client-go candidate that leads cannot be asked to hand over; if one has released,
// the Lease can be reserved.
func TestTransferAndClientGo(t *testing.T) {
	s, d := imitated(t)
	s.change("one", func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 15, 3) })
	if err := leaderelection.Transfer(t.Context(), d, "b"); !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), "client-go") {
		t.Errorf("Transfer: %v", err)
	}
	if err := leaderelection.StepDown(t.Context(), d, false); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("StepDown: %v", err)
	}
	s.change("one", func(l *coordinationv1.Lease) { l.Spec = bySpec("", 1, 3) })
	if err := leaderelection.Transfer(t.Context(), d, "b"); err != nil {
		t.Fatal(err)
	}
	if e := feedtest.Read(t, d); !e.Vacant() || e.Successor != "b" || e.ElectionNumber != 4 || e.TermLength != leaderelection.DefaultTermLength {
		t.Errorf("%+v", e)
	}
}

// A token is greater than leaseTransitions, even if these have run ahead of the record.
func TestTokenIsAboveTransitions(t *testing.T) {
	s, d := imitated(t)
	s.change("one", func(l *coordinationv1.Lease) { l.Spec = bySpec("", 1, 30) })
	feedtest.Write(t, d, 7, feedtest.Read(t, d).Token) // by somebody who counts again
	s.change("one", func(l *coordinationv1.Lease) { l.Spec = bySpec("x", 15, *l.Spec.LeaseTransitions+1) })
	if e, l := feedtest.Read(t, d), s.lease("one"); e.ElectionNumber != leaderelection.ElectionNumber(*l.Spec.LeaseTransitions)+1 {
		t.Errorf("number %d, after %d transitions", e.ElectionNumber, *l.Spec.LeaseTransitions)
	}
}

// A number that was born with the time outlives the annotations as well, even if client-go has led
// since: the next leader does not begin again at a small number, which every fence would refuse.
func TestNumberBornWithTheTimeOutlivesTheAnnotations(t *testing.T) {
	born := uint64(time.Now().Unix())
	for taken := range int32(2) {
		s, d := imitated(t)
		feedtest.Write(t, d, born, nil)
		feedtest.Write(t, d, born+1, feedtest.Read(t, d).Token)
		s.change("one", func(l *coordinationv1.Lease) {
			l.Annotations = nil
			*l.Spec.LeaseTransitions += taken
		})
		if e := feedtest.Read(t, d); uint64(e.ElectionNumber) != born+1+uint64(taken) {
			t.Errorf("after %d transitions of others it reads %d, want %d", taken, e.ElectionNumber, born+1+uint64(taken))
		}
	}
	// A number that leaves client-go no room to count in is not written there.
	s, d := imitated(t)
	feedtest.Write(t, d, math.MaxInt32, nil)
	if n := *s.lease("one").Spec.LeaseTransitions; n != 0 {
		t.Errorf("leaseTransitions is %d", n)
	}
}

// An empty Lease that was written again after it was made may have had a leader.
func TestEmptied(t *testing.T) {
	now := metav1.Now()
	by := func(after time.Duration) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: "m", Time: ref(metav1.NewTime(now.Add(after)))}
	}
	for name, c := range map[string]struct {
		meta    metav1.ObjectMeta
		emptied bool
	}{
		"new":                      {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{by(0)}}, false},
		"by nobody that is known":  {metav1.ObjectMeta{}, false},
		"replaced":                 {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{by(time.Second)}}, true},
		"written by somebody else": {metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{by(0), by(time.Hour)}}, true},
		"made long ago":            {metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}, true},
		"of a later generation":    {metav1.ObjectMeta{Generation: 2, ManagedFields: []metav1.ManagedFieldsEntry{by(0)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := imitated(t)
			s.change("one", func(l *coordinationv1.Lease) {
				l.CreationTimestamp, l.Generation, l.ManagedFields = c.meta.CreationTimestamp, c.meta.Generation, c.meta.ManagedFields
				if l.CreationTimestamp.IsZero() {
					l.CreationTimestamp = now
				}
			})
			if e := feedtest.Read(t, d); e.Emptied != c.emptied || e.ElectionNumber != leaderelection.NoElections {
				t.Errorf("it reads %+v", e)
			}
			if n := feedtest.Next(t, feedtest.Follow(t, d)); n.Err != nil || n.Emptied != c.emptied {
				t.Errorf("the feed yields %+v", n)
			}
			feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
			if e := feedtest.Read(t, d); e.Emptied {
				t.Errorf("with a record it reads %+v", e)
			}
		})
	}
}
