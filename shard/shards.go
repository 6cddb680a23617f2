package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Shards is the set of a group's shards. Make it by [Numbered], [Named] or [Listed]. The members of
// a group must agree on it. The coordinator's set counts, and other members report that theirs
// differs.
type Shards struct {
	numbered int
	names    []string
	list     func(ctx context.Context) ([]string, error)
}

// Numbered returns n shards with the names "0" to n-1. Use it to divide keys: [ForKey] maps them to
// these shards. They take the least room in the assignment.
func Numbered(n int) Shards { return Shards{numbered: n} }

// Named returns a shard for each name. Use it if the shards have names that seldom change. The
// order has no meaning. Config.Join refuses a name that is there twice.
func Named(names ...string) Shards {
	names = slices.Clone(names)
	slices.Sort(names)
	return Shards{names: names}
}

// Listed returns the shards whose names the function list returns, in any order. Use it if shards
// come and go, such as tenants: no member needs a restart.
//
// The coordinator calls list when it begins, and again once a term. An error, a name that is there
// twice and an empty list are logged, and change nothing: no shard is let go for it. The ctx of
// list ends after a term. list is not called again before it has returned.
func Listed(list func(ctx context.Context) ([]string, error)) Shards { return Shards{list: list} }

// Len returns the number of shards. For Listed shards it returns 0.
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

// index returns the position of the shard with a name, or none.
func (s Shards) index(name string) int {
	if s.names != nil {
		if i, ok := slices.BinarySearch(s.names, name); ok {
			return i
		}
		return none
	}
	name = unqualified(name, s.numbered)
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < s.numbered && strconv.Itoa(i) == name {
		return i
	}
	return none
}

// canonical returns the name that a shard has in the assignment, if name may be its [KeyName]. It
// returns name itself if there is no such shard.
func (s Shards) canonical(name string) string {
	if i := s.index(name); i != none {
		return s.Name(i)
	}
	return name
}

// unqualified is a numbered shard's name without the number of all shards, which [KeyName] adds, if
// that is of. Else it is left as it is, and no shard has that name.
func unqualified(name string, of int) string {
	return strings.TrimSuffix(name, "/"+strconv.Itoa(of))
}

func (s Shards) equal(o Shards) bool {
	return s.numbered == o.numbered && slices.Equal(s.names, o.names)
}

// differs compares the shards of a with want. It returns the shards missing in a and those unknown
// to want, as texts with the first few names. It also reports whether all of the unknown shards
// seem to be going: a shard that is being let go may also be about to move.
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

// some returns a text with the first few of many names.
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
	case s.numbered < 0 || s.numbered > 0 && s.names != nil:
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

// KeyName names the shard of a key for routers and for [Owners]: "7/64" is shard 7 of 64. While the
// group has another number of shards, nobody owns one of that name; the bare "7" would be
// another shard, with other keys. It panics like [ForKey].
func KeyName(key string, n int) string { return fmt.Sprintf("%d/%d", ForKey(key, n), n) }

// ForKey returns the shard to which a key belongs, of n numbered shards: a number from 0 to n-1. Use
// it to find a key's owner. The result is the same on every machine and in every version of this
// package. When n grows by one, about one key in n moves, and only to the new shard. ForKey
// panics if n is not from 1 to 2^31.
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

// usualMembers is the number of members for which an assignment must have room from the start.
const usualMembers = 10

// Size estimates how many bytes the assignment of s takes in its record's ConnectionParams. Use it
// to find out how many shards a store has room for. The estimate is for the given number of
// members, whose names have 16 bytes, after some hundred thousand moves. The real size
// differs, since tokens grow with moves, and similar names compress better.
//
// If the assignment is larger than a record may be, the error wraps [ErrTooLarge]. If s is not a
// set of shards, Size returns another error.
func (s Shards) Size(members int) (int, error) {
	size, err := s.size(members, MaxAssignment)
	if err != nil {
		return 0, fmt.Errorf("shard: %w", err)
	}
	return size, nil
}

// size is Size for a record that has room for limit bytes.
func (s Shards) size(members, limit int) (int, error) {
	r := rand.New(rand.NewPCG(1, 2)) // the same each time
	a := &assignment{id: "any", shards: s, places: make([]placed, max(s.Len(), 0))}
	for i := range max(1, min(members, MaxShards)) {
		a.sessions = append(a.sessions, session{SessionID: SessionID{i, leaderelection.ElectionNumber(1 + r.IntN(100))}, Member: fmt.Sprintf("member-%09x", r.Uint32()), HostPort: []string{fmt.Sprintf("10.0.%d.%d:8080", i/250, i%250)}})
	}
	most := uint64(max(10, 400_000/max(s.Len(), 1)))
	for i := range a.places {
		a.places[i] = placed{session: r.IntN(len(a.sessions)), token: 1 + r.Uint64N(most)}
	}
	e, err := a.entry(limit)
	if err != nil {
		return 0, err
	}
	return len(e.ConnectionParams), nil
}

// fit estimates how many shards of s fit into limit bytes.
func (s Shards) fit(members, limit int) int {
	return sort.Search(s.Len(), func(n int) bool {
		first := Numbered(n + 1)
		if s.names != nil {
			first = Shards{names: s.names[:n+1]}
		}
		_, err := first.size(members, limit)
		return err != nil
	})
}

// list asks for the names of the shards once a term, if a function lists them. Nobody waits for
// it, since the function may hang.
func (c *coordinator) list() {
	for c.ctx.Err() == nil {
		select {
		case c.m.listing <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		begun := time.Now()
		names, err := c.m.names(c.ctx)
		<-c.m.listing
		shards := Named(names...)
		if err == nil {
			err = shards.check()
		}
		if err == nil && len(names) == 0 {
			err = errors.New("it lists none, which is taken for an error")
		}
		if err == nil {
			c.m.lists.Worked(c.m.elapsed(), "")
			c.post(seatEvent{listed: &shards})
		} else if c.ctx.Err() == nil {
			c.m.lists.Failed(c.m.elapsed(), "", "the shards cannot be listed, and stay as they are", "err", err)
		}
		every := c.m.cfg.TermLength
		if err != nil {
			every /= 4
		}
		sleep(c.ctx, every-time.Since(begun))
	}
}

// names calls the function.
func (m *Member) names(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.TermLength)
	defer cancel()
	return m.cfg.Shards.list(ctx)
}
