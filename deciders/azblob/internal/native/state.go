package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// Event says that the leader holds the lease on a blob, or no longer does.
type Event struct {
	Blob  string
	Held  bool
	ID    string
	Until time.Time
	Err   error
}

// target is a blob, and what is known of the lease on it with the id of the current
// leadership.
type target struct {
	*blob.Client
	name  string
	until time.Time // it is held until then, if err is nil
	err   error
	held  bool        // as the last Event has it
	out   *time.Timer // until it runs out
}

var (
	errNotYet   = errors.New("it has not been taken yet")
	errRanOut   = errors.New("it has run out")
	errReleased = errors.New("it was released")
	errLeft     = errors.New("it is not a companion any more")
)

func (l *Leases) target(name string) *target {
	t := &target{name: name, err: errNotYet}
	if l.c != nil { // else Bind does it
		t.Client = l.c.NewBlobClient(name)
	}
	return t
}

// set makes these the companions. Those that are new are taken, and those that were
// companions are released, with the next write of the leader.
func (l *Leases) set(companions []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.blobs) == 0 {
		l.blobs = []*target{l.target("")} // the record's, which Bind names
	}
	was := l.blobs[1:]
	l.blobs = slices.Clone(l.blobs[:1])
	for _, name := range companions {
		is := func(t *target) bool { return t.name == name }
		switch i := slices.IndexFunc(was, is); {
		case slices.ContainsFunc(l.blobs, is):
		case i >= 0:
			l.blobs = append(l.blobs, was[i])
		default:
			l.blobs = append(l.blobs, l.target(name))
			l.leaving = slices.DeleteFunc(l.leaving, is)
		}
	}
	for _, t := range was {
		if !slices.Contains(l.blobs, t) {
			l.lost(t, errLeft, nil)
			l.leaving = append(l.leaving, t)
		}
	}
}

// noted takes in what has become of the leases. L.mu is locked.
func (l *Leases) noted(blobs []*target, errs []error, released bool, until time.Time) {
	for i, t := range blobs {
		switch {
		case !slices.Contains(l.blobs, t): // left meanwhile
		case released:
			l.lost(t, errReleased, nil)
		case errs[i] != nil:
			l.lost(t, errs[i], errs[i])
		default:
			l.won(t, until)
		}
	}
}

// won notes that a lease is held. L.mu is locked.
func (l *Leases) won(t *target, until time.Time) {
	t.stop()
	t.until, t.err = until, nil
	t.out = time.AfterFunc(time.Until(until), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.err == nil && t.until.Equal(until) {
			l.lost(t, errRanOut, errRanOut)
		}
	})
	if !t.held {
		t.held = true
		l.tell(Event{Blob: t.name, Held: true, ID: l.id, Until: until})
	}
}

// lost notes that a lease is not held, and tells so for this reason. L.mu is locked.
func (l *Leases) lost(t *target, why, told error) {
	t.stop()
	t.err = why
	if t.held {
		t.held = false
		l.tell(Event{Blob: t.name, ID: l.id, Err: told})
	}
}

func (t *target) stop() {
	if t.out != nil {
		t.out.Stop()
	}
}

// tell has the caller told, one event after the other, by a goroutine that nobody waits
// for. L.mu is locked.
func (l *Leases) tell(e Event) {
	if l.changed == nil {
		return
	}
	l.queue = append(l.queue, e)
	if l.telling {
		return
	}
	l.telling = true
	go func() {
		for {
			l.mu.Lock()
			if l.telling = len(l.queue) > 0; !l.telling {
				l.mu.Unlock()
				return
			}
			next := l.queue[0]
			l.queue = l.queue[1:]
			l.mu.Unlock()
			l.changed(next)
		}
	}()
}

// held returns the id of the leases of a leadership, if those on the blobs of these names
// are held; without any, all of them.
func (l *Leases) held(number leaderelection.ElectionNumber, names ...string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.leads(number); err != nil {
		return "", err
	}
	var errs []error
	for _, t := range l.blobs {
		switch {
		case len(names) > 0 && !slices.Contains(names, t.name):
		case t.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", t.name, t.err))
		case !time.Now().Before(t.until): // and the timer is late
			errs = append(errs, fmt.Errorf("%s: %w", t.name, errRanOut))
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(l.blobs, func(t *target) bool { return t.name == name }) {
			errs = append(errs, fmt.Errorf("%s is not a companion: see Companions", name))
		}
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	return l.id, nil
}

// Of returns the id of the leases of a leadership of this Decider's campaign; else empty.
func (l *Leases) Of(number leaderelection.ElectionNumber) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leads(number) != nil {
		return ""
	}
	return l.id
}

// acquireFor takes the lease on a blob now, for the leadership of this number, and makes the blob a
// companion, so that the lease is renewed with each extension. It returns the lease's id.
func (l *Leases) acquireFor(ctx context.Context, number leaderelection.ElectionNumber, name string) (string, error) {
	l.mu.Lock()
	id, term := l.id, l.term
	err := l.leads(number)
	l.mu.Unlock()
	if err != nil {
		return "", err
	}
	length, err := l.duration(term)
	if err != nil {
		return "", err
	}
	t := l.target(name)
	start := time.Now()
	err = l.acquire(ctx, t, At{ID: id}, length)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		return "", redact.Error(err)
	case l.leads(number) != nil: // it runs out by itself
		return "", l.leads(number)
	}
	is := func(o *target) bool { return o.name == name }
	l.leaving = slices.DeleteFunc(l.leaving, is)
	if i := slices.IndexFunc(l.blobs, is); i >= 0 {
		t = l.blobs[i]
	} else {
		l.blobs = append(l.blobs, t)
	}
	l.won(t, start.Add(length))
	return id, nil
}

// acquire takes the lease, and makes the blob if companions are to be made.
func (l *Leases) acquire(ctx context.Context, t *target, next At, length time.Duration) error {
	c, err := leaseClient(t.Client, next.ID)
	if err != nil {
		return err
	}
	r, err := c.AcquireLease(ctx, int32(length/time.Second), nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) && l.create {
		if err := l.make(ctx, t.name); err != nil {
			return err
		}
		r, err = c.AcquireLease(ctx, int32(length/time.Second), nil)
	}
	return l.taken(next, r.LeaseID, err)
}

// releaseFor gives up the lease on a blob now, which is no longer a companion. If the lease cannot
// be released now, the next write releases it.
func (l *Leases) releaseFor(ctx context.Context, number leaderelection.ElectionNumber, name string) error {
	l.mu.Lock()
	err := l.leads(number)
	id := l.id
	i := slices.IndexFunc(l.blobs, func(t *target) bool { return t.name == name })
	if err == nil && i <= 0 {
		err = fmt.Errorf("%s is not a companion", name)
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	t := l.blobs[i]
	l.blobs = slices.Delete(slices.Clone(l.blobs), i, i+1) // a Follow goes on with the others
	l.lost(t, errLeft, nil)
	l.leaving = append(l.leaving, t)
	l.mu.Unlock()
	err = release(ctx, t.Client, id)
	if err != nil && !bloberror.HasCode(err, append(slices.Clone(noLeaseOfOurs), bloberror.BlobNotFound)...) {
		return redact.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving = slices.DeleteFunc(l.leaving, func(o *target) bool { return o == t })
	return nil
}

// breakFor ends whatever lease is on a blob, at once, while the leadership of this number lasts.
func (l *Leases) breakFor(ctx context.Context, number leaderelection.ElectionNumber, name string) error {
	l.mu.Lock()
	err := l.leads(number)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	c, err := lease.NewBlobClient(l.c.NewBlobClient(name), nil)
	if err == nil {
		_, err = c.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: new(int32)})
	}
	if bloberror.HasCode(err, bloberror.LeaseNotPresentWithLeaseOperation) {
		return nil // there is none
	}
	return redact.Error(err)
}

// leads returns why the leadership of this number is not that of this Decider's campaign, or
// nil. L.mu is locked.
func (l *Leases) leads(number leaderelection.ElectionNumber) error {
	if number == leaderelection.NoElections || number != l.since {
		return fmt.Errorf("the leadership with token %d is not of this Decider's campaign: %w", number, leaderelection.ErrNotLeading)
	}
	return nil
}
