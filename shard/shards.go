package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Shards is the set of a group's shards: see [Numbered] and [Named]. Members of a
// group must agree on it: the coordinator's holds, and others report that theirs differs.
type Shards struct {
	numbered int
	names    []string
}

// Numbered returns n shards with the names "0" to n-1. They take the least room in the
// assignment, and [ForKey] maps keys to them.
func Numbered(n int) Shards { return Shards{numbered: n} }

// Named returns a shard for each name. The order has no meaning; a name that is there
// twice is refused by Config.Join.
func Named(names ...string) Shards {
	names = slices.Clone(names)
	slices.Sort(names)
	return Shards{names: names}
}

// Len returns how many there are.
func (s Shards) Len() int {
	if s.names != nil {
		return len(s.names)
	}
	return s.numbered
}

// Name returns the name of shard i, which must be from 0 to Len()-1.
func (s Shards) Name(i int) string {
	if s.names != nil {
		return s.names[i]
	}
	return strconv.Itoa(i)
}

// index returns the position of a name, or none.
func (s Shards) index(name string) int {
	if s.names != nil {
		if i, ok := slices.BinarySearch(s.names, name); ok {
			return i
		}
		return none
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < s.numbered && strconv.Itoa(i) == name {
		return i
	}
	return none
}

func (s Shards) equal(o Shards) bool {
	return s.numbered == o.numbered && slices.Equal(s.names, o.names)
}

// differs returns which of want a has not, and which a has and want has not, the first of
// them by name; and whether none of the latter is to stay, as it seems: a shard that is let
// go may be about to move as well.
func (a *assignment) differs(want Shards) (missing, unknown string, going bool) {
	if going = true; a.shards.equal(want) {
		return "", "", going
	}
	var more, others []string
	for i := range want.Len() {
		if name := want.Name(i); a.shards.index(name) == none {
			more = append(more, name)
		}
	}
	for i, p := range a.places {
		if name := a.shards.Name(i); want.index(name) == none {
			others = append(others, name)
			going = going && (p.session == none || p.releasing)
		}
	}
	return some(more), some(others), going
}

// some is a few of many names.
func some(names []string) string {
	const few = 3
	quoted := make([]string, min(len(names), few))
	for i := range quoted {
		quoted[i] = strconv.Quote(names[i])
	}
	text := strings.Join(quoted, ", ")
	if n := len(names) - few; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

func (s Shards) check() error {
	switch n := s.Len(); {
	case s.numbered < 0 || s.numbered > 0 && len(s.names) > 0:
		return fmt.Errorf("%d numbered shards and %d named ones cannot be", s.numbered, len(s.names))
	case n > MaxShards:
		return fmt.Errorf("%d shards are more than a group may have, which is %d: %w", n, MaxShards, ErrTooLarge)
	}
	var faults []error
	for i, name := range s.names {
		if err := checkName("a shard's name", name); err != nil {
			faults = append(faults, err)
		}
		if i > 0 && name <= s.names[i-1] {
			faults = append(faults, fmt.Errorf("the shard %q is there twice, or out of order", name))
		}
	}
	return errors.Join(faults...)
}

// ForKey returns which of n numbered shards a key belongs to: a number from 0 to n-1,
// the same on every machine and in every version of this package. When n grows by
// one, about one key in n moves, and only to the new shard. It panics if n is not
// from 1 to 2^31.
//
// The algorithm, for other languages: h is the 64-bit FNV-1a hash of the key's bytes,
// mixed once by the finalizer of SplitMix64; the shard is Lamping and Veach's jump
// consistent hash of h ("A Fast, Minimal Memory, Consistent Hash Algorithm", 2014),
// with the division in integers: each step multiplies h by 2862933555777941757 and
// adds 1, and jumps to floor((b+1) * 2^31 / (floor(h / 2^33) + 1)). TestForKey has
// vectors.
func ForKey(key string, n int) int {
	if n < 1 || uint64(n) > 1<<31 {
		panic(fmt.Sprintf("shard: ForKey(%q, %d): from 1 to 2^31 shards", key, n))
	}
	f := fnv.New64a()
	_, _ = f.Write([]byte(key)) // never fails
	h := binary.BigEndian.Uint64(f.Sum(nil))
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	b, next := uint64(0), uint64(0)
	for next < uint64(n) {
		b = next
		h = h*2862933555777941757 + 1
		hi, lo := bits.Mul64(b+1, 1<<31)
		next, _ = bits.Div64(hi, lo, h>>33+1)
	}
	return int(b)
}
