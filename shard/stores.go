package shard

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// patience is how long a caller without another bound than a ctx waits for Store.
const patience = leaderelection.DefaultTermLength

// stores keeps the decider of each name. Store is user code and may hang. So it is called in its
// own goroutine, without a lock, once for all callers that want the name.
type stores struct {
	open func(string) (leaderelection.RaceDecider, error)

	mu       sync.Mutex
	deciders map[string]leaderelection.RaceDecider
	opening  map[string]*opening
	calls    map[string]int // the number of calls that have not returned
}

// maxCalls is how many calls for one record may be under way. There are at most three, unless the
// store neither answers nor respects its ctx.
const maxCalls = 8

var errCallsHang = errors.New("the store neither answers nor heeds its ctx")

// begin reports whether another call may be made for a record. If so, call end when it has
// returned.
func (s *stores) begin(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[name] >= maxCalls {
		return false
	}
	s.calls[name]++
	return true
}

func (s *stores) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[name]--; s.calls[name] == 0 {
		delete(s.calls, name)
	}
}

// opening is a call of Store.
type opening struct {
	done    chan struct{} // closed when it has returned
	decider leaderelection.RaceDecider
	err     error
}

func newStores(open func(string) (leaderelection.RaceDecider, error)) *stores {
	return &stores{open: open, deciders: map[string]leaderelection.RaceDecider{}, opening: map[string]*opening{}, calls: map[string]int{}}
}

// errOneRecord means that two names have one record: each must have its own.
var errOneRecord = errors.New("the Store returned deciders of one record for two names")

var errHangs = errors.New("it should not wait for anything that may hang")

// get returns the decider of a name. It waits for at most d, and until ctx ends. A call of Store
// that hangs is not made again: later callers wait for the same call. A call that has failed is
// made again.
func (s *stores) get(ctx context.Context, d time.Duration, name string) (leaderelection.RaceDecider, error) {
	s.mu.Lock()
	if known, ok := s.deciders[name]; ok {
		s.mu.Unlock()
		return known, nil
	}
	o := s.opening[name]
	if o == nil {
		o = &opening{done: make(chan struct{})}
		s.opening[name] = o
		go s.ask(name, o)
	}
	s.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-o.done:
		return o.decider, o.err
	case <-timer.C:
		return nil, fmt.Errorf("Store(%q) has not returned within %v: %w", name, d, errHangs)
	case <-ctx.Done():
		return nil, fmt.Errorf("Store(%q) has not returned: %w", name, context.Cause(ctx))
	}
}

// ask calls Store.
func (s *stores) ask(name string, o *opening) {
	d, err := leaderelection.RaceDecider(nil), errors.New("it has ended its goroutine") // by runtime.Goexit
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.opening, name)
		if o.err = s.judge(name, d, err); o.err == nil {
			o.decider, s.deciders[name] = d, d
		}
		close(o.done)
	}()
	d, err = s.open(name)
}

// judge returns what is wrong with the result of Store for a name, or nil. The caller holds s.mu.
func (s *stores) judge(name string, d leaderelection.RaceDecider, err error) error {
	if err != nil {
		return fmt.Errorf("Store(%q): %w", name, err)
	}
	v := reflect.ValueOf(d)
	if d == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("Store(%q) returned no decider", name)
	}
	for other, o := range s.deciders {
		if v.Comparable() && reflect.ValueOf(o).Comparable() && o == d {
			return fmt.Errorf("the Store returned the same decider for %q and %q: each must be a record of its own", other, name)
		}
	}
	return nil
}

// current is d.ReadCurrent with a check for nil, which no store's answer can be.
func current(d leaderelection.RaceDecider) func(context.Context) (*leaderelection.RaceEntry, error) {
	return func(ctx context.Context) (*leaderelection.RaceEntry, error) {
		e, err := d.ReadCurrent(ctx)
		if err == nil && e == nil {
			err = fmt.Errorf("the RaceDecider's ReadCurrent returned nil without an error: %w", leaderelection.ErrPermanent)
		}
		return e, err
	}
}

// distinct returns what is wrong with the records of these names. If ctx ends before that is known,
// it returns the cause of ctx alone.
func (s *stores) distinct(ctx context.Context, names ...string) error {
	if ctx.Err() != nil { // the caller wants to know only what is wrong
		ctx = context.WithoutCancel(ctx)
	}
	var faults []error
	for _, name := range names {
		_, err := s.get(ctx, patience, name)
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
			return cause
		}
		if faults = append(faults, err); errors.Is(err, errHangs) {
			break // the others may, too
		}
	}
	return errors.Join(faults...)
}
