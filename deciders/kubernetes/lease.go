package kubernetes

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

// The annotations in which the record is kept.
const (
	recordKey  = "leaderelection/record"  // the record as all stores of this library keep it
	writtenKey = "leaderelection/written" // the spec that was written with it
)

// ClientGo is the Incarnation of a record that client-go's leaderelection has written, or anybody
// else who changes a Lease's spec without this package.
const ClientGo = "client-go"

// written is the annotation that tells whose the spec is. Client-go leaves annotations as
// they are, so a spec that is another is not the record's.
type written struct {
	Spec coordinationv1.LeaseSpec `json:"spec"`
	Over string                   `json:"over"` // the resourceVersion before: no two writes are alike
}

// number is a resourceVersion, which grows with each write; 0 if it is none.
func number(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 63)
	if err != nil {
		return 0
	}
	return n
}

// value is what p points to, or nothing.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// sameSpec compares what client-go and this package write.
func sameSpec(a, b *coordinationv1.LeaseSpec) bool {
	return value(a.HolderIdentity) == value(b.HolderIdentity) &&
		value(a.LeaseDurationSeconds) == value(b.LeaseDurationSeconds) &&
		value(a.LeaseTransitions) == value(b.LeaseTransitions) &&
		value(a.RenewTime).Time.Equal(value(b.RenewTime).Time) && value(a.AcquireTime).Time.Equal(value(b.AcquireTime).Time)
}

func ref[T any](v T) *T { return &v }

// stored is the record in a Lease: the annotation's, or if the spec is not the one that
// was written with it, what the spec says.
func (b *backend) stored(l *coordinationv1.Lease) (store.Stored[version], error) {
	s := store.Stored[version]{At: version{lease: l}}
	spec := &l.Spec
	text, ours := l.Annotations[recordKey]
	transitions := value(spec.LeaseTransitions) // the API server lets none be negative
	if !ours {
		if value(spec.HolderIdentity) == "" && transitions == 0 && spec.RenewTime == nil && spec.AcquireTime == nil {
			s.None, s.Emptied = true, changed(l) // a Lease that was made beforehand, or emptied
			return s, nil
		}
		return b.foreign(l, leaderelection.ElectionNumber(transitions)+1, &leaderelection.RaceEntry{})
	}
	var w written
	if err := json.Unmarshal([]byte(l.Annotations[writtenKey]), &w); err != nil {
		return s, b.unusable("the annotation " + writtenKey + ", which goes with " + recordKey + ", cannot be read (" + err.Error() + ")")
	}
	since := transitions - value(w.Spec.LeaseTransitions)
	vacated := value(spec.HolderIdentity) == ""
	if sameSpec(spec, &w.Spec) || vacated && since <= 0 {
		// Whoever takes a Lease over counts a transition. So one that was vacated without
		// was vacated by somebody who did not hold it: the record's leader may lead.
		s.Data = []byte(text)
		return s, nil
	}
	e, err := record.Unmarshal(b.place, []byte(text))
	if err != nil {
		return s, err
	}
	n := e.ElectionNumber + leaderelection.ElectionNumber(max(since, 1))
	return b.foreign(l, max(n, leaderelection.ElectionNumber(transitions)+1), e)
}

// young is the age of a Lease that nobody has led yet for sure, if nothing shows that it was
// written again. One that is older may have been emptied: the API server need not note who has
// only removed what was there.
const young = 5 * time.Minute

// changed reports whether an empty Lease may have had a record: whoever replaces one by its manifest
// (kubectl replace, helm --force) leaves no more than that. To be wrong costs a term, once.
func changed(l *coordinationv1.Lease) bool {
	made := l.CreationTimestamp
	later := func(m metav1.ManagedFieldsEntry) bool { return m.Time != nil && m.Time.After(made.Time) }
	return !made.IsZero() && time.Since(made.Time) > young || l.Generation > 1 || slices.ContainsFunc(l.ManagedFields, later)
}

// foreign is the record that stands for a spec which client-go wrote. Its clock is not to
// be compared: the term is over when the spec has not been seen to change for
// leaseDurationSeconds, as for client-go. A renewal has another renewTime, and so another
// TermExpiry, which tells terms apart; the resourceVersion grows with each, whatever
// clocks do, which tells newer from older.
//
// Whatever the spec says, ours, the record in the annotation, keeps its time: its leader may
// not know of the change, and lead on until its view ends. It has extended its term before the
// spec was changed, so a whole TermLength since then is enough; of a vacancy the record's
// own TermExpiry is known as well.
func (b *backend) foreign(l *coordinationv1.Lease, n leaderelection.ElectionNumber, ours *leaderelection.RaceEntry) (store.Stored[version], error) {
	e := &leaderelection.RaceEntry{
		LeaderID: value(l.Spec.HolderIdentity), Incarnation: ClientGo, ElectionNumber: n, Extension: number(l.ResourceVersion),
		TermExpiry: value(l.Spec.RenewTime).Time, Hold: min(ours.Hold, leaderelection.MaxTermLength), Extra: ours.Extra,
	}
	left := time.Duration(0)
	if !ours.Vacant() {
		left = min(ours.TermLength, leaderelection.MaxTermLength)
	}
	switch {
	case !e.Vacant():
		e.Unsynchronized = true
		e.TermLength = max(time.Duration(value(l.Spec.LeaseDurationSeconds))*time.Second, left)
		e.TermExpiry = e.TermExpiry.Add(e.TermLength)
	case e.Hold+left > 0:
		e.TermExpiry, e.Hold, e.Unsynchronized = ours.TermExpiry.Add(-left), e.Hold+left, ours.Unsynchronized
	}
	if e.TermLength > leaderelection.MaxTermLength || value(l.Spec.LeaseDurationSeconds) < 0 {
		return store.Stored[version]{}, b.unusable("leaseDurationSeconds is negative, or more than a year")
	}
	data, err := record.Marshal(e)
	if err != nil {
		return store.Stored[version]{}, b.unusable(err.Error())
	}
	return store.Stored[version]{Data: data, At: version{lease: l}}, nil
}

// unusable is why a Lease cannot be understood, and so is left alone.
func (b *backend) unusable(why string) error {
	return store.Wrong("the Lease cannot be used: %s; repair it, or stop all candidates and reset it (leaderelect reset), which keeps the count", why)
}

// next is the Lease that replaces the one at the version at.
func (b *backend) next(at version, data []byte, e *leaderelection.RaceEntry) (*coordinationv1.Lease, error) {
	l := at.lease.DeepCopy()
	if l == nil {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: b.name, Labels: b.labels}}
	}
	l.APIVersion, l.Kind = coordinationv1.SchemeGroupVersion.String(), "Lease"
	l.ManagedFields = nil // the server has them: they need not be sent back
	was := l.Spec
	transitions := nextTransitions(l, at, e)
	renew := nextRenewTime(&was, at, e)
	acquire := renew
	if e.ElectionNumber == at.number && !e.Vacant() && was.AcquireTime != nil {
		acquire = was.AcquireTime
	}
	seconds := int32(1) // as client-go's release
	if !e.Vacant() {
		seconds = leaseSeconds(e.TermLength)
	}
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: ref(e.LeaderID), LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions, RenewTime: renew, AcquireTime: acquire,
	}
	w, err := json.Marshal(written{Spec: spec, Over: l.ResourceVersion})
	if err != nil {
		return nil, err
	}
	spec.Strategy, spec.PreferredHolder = was.Strategy, was.PreferredHolder
	l.Spec = spec
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[recordKey], l.Annotations[writtenKey] = string(data), string(w)
	return l, nil
}

// leaseSeconds is for how long client-go's candidates wait after they have seen a record
// of this term: a hundredth more than the term, for clocks that run faster than the
// leader's.
func leaseSeconds(term time.Duration) int32 {
	seconds := math.Ceil(term.Seconds() * 1.01)
	return int32(min(max(seconds, 1), math.MaxInt32))
}

// room is how far below the greatest leaseTransitions there is a number that is written there:
// client-go counts on, and does not look whether it can. A number that is born with the time is
// below that until the end of 2035.
const room = 1 << 26

// nextTransitions counts a transition for each new leadership. It is one less than the
// ElectionNumber at the least: so the number outlives the annotations, should anybody
// drop them.
func nextTransitions(l *coordinationv1.Lease, at version, e *leaderelection.RaceEntry) int32 {
	var w written
	_ = json.Unmarshal([]byte(l.Annotations[writtenKey]), &w) // none in a Lease of client-go's
	n := max(value(l.Spec.LeaseTransitions), value(w.Spec.LeaseTransitions))
	if e.ElectionNumber > at.number && at.number > leaderelection.NoElections {
		n = min(n, math.MaxInt32-2) + 1 // and leave one for client-go, which does not look
	}
	if least := e.ElectionNumber - 1; e.ElectionNumber > 0 && least < math.MaxInt32-room {
		n = max(n, int32(least))
	}
	return n
}

// nextRenewTime is when e's term was extended: in a vacancy, when it was released. Of one
// leadership each extension has another second, since client-go's candidates, which wait
// for leaseDurationSeconds from when they saw a change, compare whole seconds.
func nextRenewTime(was *coordinationv1.LeaseSpec, at version, e *leaderelection.RaceEntry) *metav1.MicroTime {
	renew := e.TermExpiry.UTC().Truncate(time.Microsecond)
	if !e.Vacant() || e.Successor != "" {
		renew = renew.Add(-min(e.TermLength, leaderelection.MaxTermLength)).Truncate(time.Microsecond)
	}
	if e.ElectionNumber == at.number && !e.Vacant() && was.RenewTime != nil {
		last := was.RenewTime.UTC()
		switch {
		case e.TermExpiry.Equal(at.expiry): // an operator's request extends nothing
			return was.RenewTime
		case renew.Unix() <= last.Unix():
			renew = last.Truncate(time.Second).Add(time.Second)
		}
	}
	if year := renew.Year(); year < 1 || year > 9999 || renew.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: renew}
}
