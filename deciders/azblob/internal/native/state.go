package native

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/c8e606e4/leaderelection"
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
