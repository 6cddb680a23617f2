package store

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
)

// ErrLags is the error of a read that shows a record in doubt again, after an attempt to make sure
// of it has found it replaced. No two versions are alike.
var ErrLags = errors.New("an earlier write had no response, and reads show a record that writes do not find: " +
	"they come from a replica that lags. Have candidates read from the primary (a proxy may send reads elsewhere)")

// Doubts knows which records the store may not have made safe yet. Some stores show a write before
// that: PostgreSQL if the wait for its standbys is cut short, and MySQL by default. If a campaign
// reads a record of its own, it concludes that its write worked. So while a write of an Incarnation
// has no response, each record of that Incarnation is in doubt. This holds for any writer: an
// operator's request is written on top of the earlier record. The zero Doubts has none. Its methods
// may be called concurrently.
type Doubts struct {
	mu      sync.Mutex
	writes  uint64            // begun so far
	open    map[string]uint64 // by Incarnation, its latest write that was not answered
	settled string            // the last version that is known to be safe
}

// remembered is how many Incarnations are remembered. Each acquisition has its own, and a campaign
// that cannot write goes on trying. It forgets its older attempts itself: a record of one of these is
// another's to it.
const remembered = 64

// Recent is the set of the Incarnations that were added last. The zero Recent is empty. Its methods
// may be called concurrently.
type Recent struct {
	mu   sync.Mutex
	last []string
}

// Add adds an Incarnation.
func (r *Recent) Add(incarnation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) == remembered {
		r.last = r.last[1:]
	}
	r.last = append(r.last, incarnation)
}

// Has reports whether the Incarnation was added, and is still remembered.
func (r *Recent) Has(incarnation string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.last, incarnation)
}

// Begin notes a write of an Incarnation. Lost removes the note, if the write is known not to have
// happened.
func (d *Doubts) Begin(incarnation string) (number uint64, lost func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[string]uint64{}
	}
	before := d.open[incarnation]
	if before == 0 && len(d.open) == remembered {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(d.open)), func(a, b string) int { return cmp.Compare(d.open[a], d.open[b]) })
		delete(d.open, oldest)
	}
	d.writes++
	number = d.writes
	d.open[incarnation] = number
	return number, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.open[incarnation] != number {
			return
		}
		if d.open[incarnation] = before; before == 0 {
			delete(d.open, incarnation)
		}
	}
}

// Landed notes that a write was confirmed. Earlier writes of this Incarnation are on versions that
// are gone: each has happened, and is as safe as this one, or never will.
func (d *Doubts) Landed(number uint64, version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = version
	maps.DeleteFunc(d.open, func(_ string, latest uint64) bool { return latest <= number })
}

// Settle notes a version that is safe.
func (d *Doubts) Settle(version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = version
}

// About reports whether the record of this Incarnation, read at this version, is in doubt.
func (d *Doubts) About(incarnation, version string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[incarnation] > 0 && version != "" && version != d.settled
}
