package proctest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/test/fleet"
)

// GroupOptions says where the store of a group of package shard is, and what befalls its
// members. Only Address is required.
type GroupOptions struct {
	// Address is as in Options; nameMark in it, "{name}", takes the place of each record's
	// name.
	Address string
	// Upstream and Env are as in Options.
	Upstream string
	Env      []string
	// Members and Shards are how many there are. Zero: 8 and 200.
	Members, Shards int
	// For is how long things go wrong before all is calm. Zero: 25 s.
	For time.Duration
	// Patience is for the calm. Zero: 3 min.
	Patience time.Duration
}

// groupTerm is the members' TermLength.
const groupTerm = 3 * time.Second

// nameMark stands for a record's name in a group's Address.
const nameMark = "{name}"

// groupRole is what a member's process is told besides its role.
type groupRole struct {
	Shards int
	Ledger string // the file that it writes down its acts in
}

// Membership says how a member's process takes part. Package grouptest of internal/test/apart makes
// a shard.Config of it: package shard is a module of its own, which this one does not require.
type Membership struct {
	ID                       string
	Shards                   int
	Store                    func(name string) (leaderelection.RaceDecider, error)
	Term, Skew, PollInterval time.Duration
	Clock                    clocks.Clock
	Logger                   *slog.Logger
	// Begin has the process act on a shard that it owns, as long as its view lets it.
	Begin func(Owned)
}

// Owned is a *shard.Owned.
type Owned interface {
	Name() string
	ElectionNumber() leaderelection.ElectionNumber
	ValueInFuture() bool
}

// playGroup takes part in the group until ctx ends.
func (r role) playGroup(ctx context.Context, open opener, member func(context.Context, Membership) error) error {
	acts, err := newActs(r.Group.Ledger)
	if err != nil {
		return err
	}
	defer acts.end()
	var mu sync.Mutex
	var opened []leaderelection.RaceDecider
	defer func() {
		for _, d := range opened {
			if c, ok := d.(io.Closer); ok {
				_ = c.Close()
			}
		}
	}()
	return member(ctx, Membership{
		ID: r.ID, Shards: r.Group.Shards, Term: groupTerm, Skew: skew, PollInterval: groupTerm / 4,
		Clock:  clocks.NewOffset(nil, r.Offset),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)).With("member", r.ID),
		Begin:  acts.begin,
		Store: func(name string) (leaderelection.RaceDecider, error) {
			// It outlives ctx: the seat is released when that has ended.
			d, err := open(context.WithoutCancel(ctx), strings.ReplaceAll(r.Address, nameMark, name))
			if err == nil {
				mu.Lock()
				opened = append(opened, d)
				mu.Unlock()
			}
			return d, err
		},
	})
}

// ownership is what a process did with a shard under one token. It begins with an act: a
// look at the view that said yes. Times are nanoseconds since 1970 by the machine's clock.
type ownership struct {
	Shard, Token int64
	First        int64 // when the first act was over
	Last         int64 // when the last one began
}

// ownershipSize is that of an ownership in a ledger, whose last number is Last.
const ownershipSize = 4 * 8

// acts has a process act on all shards that it owns, and writes that down, where it stays if
// the process is killed.
type acts struct {
	file  *os.File
	stop  chan struct{}
	ended chan struct{}

	mu    sync.Mutex
	owned map[Owned]int64 // its place in the ledger; -1: none yet
	size  int64
}

// actAround is how often each shard is acted on.
const actAround = 5 * time.Millisecond

func newActs(path string) (*acts, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	a := &acts{file: f, stop: make(chan struct{}), ended: make(chan struct{}), owned: map[Owned]int64{}}
	go func() {
		defer close(a.ended)
		tick := time.NewTicker(actAround)
		defer tick.Stop()
		for {
			select {
			case <-a.stop:
				return
			case <-tick.C:
				a.around()
			}
		}
	}()
	return a, nil
}

func (a *acts) end() {
	close(a.stop)
	<-a.ended
	_ = a.file.Close() // what was written is there
}

// begin acts on a shard for the first time.
func (a *acts) begin(o Owned) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owned[o] = -1
	a.act(o)
}

// around acts on each shard as long as its view lets it, whatever its ctx says: the view
// is the promise under test.
func (a *acts) around() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for o := range a.owned {
		a.act(o)
	}
}

func (a *acts) act(o Owned) {
	before := time.Now().UnixNano()
	mayAct := o.ValueInFuture()
	after := time.Now().UnixNano()
	if !mayAct {
		delete(a.owned, o)
		return
	}
	text := binary.LittleEndian.AppendUint64(nil, uint64(before))
	at := a.owned[o] + ownershipSize - int64(len(text))
	if a.owned[o] < 0 {
		name, _ := strconv.ParseUint(o.Name(), 10, 63) // Numbered shards
		text = nil
		for _, n := range []uint64{name, uint64(o.ElectionNumber()), uint64(after), uint64(before)} {
			text = binary.LittleEndian.AppendUint64(text, n)
		}
		at, a.owned[o], a.size = a.size, a.size, a.size+ownershipSize
	}
	if _, err := a.file.WriteAt(text, at); err != nil {
		panic(err) // a test's process that cannot say what it does must not do it
	}
}

// readLedger returns what a process has written down so far.
func readLedger(path string) ([]ownership, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil // it was not that far yet
	}
	all := make([]ownership, 0, len(text)/ownershipSize)
	for ; len(text) >= ownershipSize; text = text[ownershipSize:] {
		n := func(i int) int64 { return int64(binary.LittleEndian.Uint64(text[8*i:])) }
		all = append(all, ownership{n(0), n(1), n(2), n(3)})
	}
	return all, err
}

// checkLedgers returns what is wrong with what the processes did with each shard, and the longest time that one had no
// owner between two.
func checkLedgers(ledgers map[string][]ownership) (problems []string, idle time.Duration) {
	shards := map[int64][]fleet.Act{}
	for process, all := range ledgers {
		for _, o := range all { // the first act was over at First, and the last one began at Last
			shards[o.Shard] = append(shards[o.Shard], fleet.Act{By: process, Token: uint64(o.Token), After: o.First},
				fleet.Act{By: process, Token: uint64(o.Token), Before: o.Last, After: math.MaxInt64})
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		all, wrong := fleet.Judge(shards[shard])
		for _, w := range wrong {
			problems = append(problems, fmt.Sprintf("shard %d: %s", shard, w))
		}
		last := all[0].Last
		for _, l := range all {
			idle, last = max(idle, time.Duration(l.First-last)), max(last, l.Last)
		}
	}
	return problems, idle
}

// counts returns how many shards each process owns, by what it has done since a moment, and
// how many there are in all.
func counts(ledgers map[string][]ownership, since time.Time) (each map[string]int, all int) {
	each = map[string]int{}
	for process, its := range ledgers {
		shards := map[int64]bool{}
		for _, o := range its {
			if o.Last >= since.UnixNano() {
				shards[o.Shard] = true
			}
		}
		each[process] = len(shards)
		all += len(shards)
	}
	return each, all
}

// balanced returns what is wrong with who has how many of so many shards, or nil.
func balanced(each map[string]int, shards, members int) error {
	all, least, most, idle := 0, shards, 0, 0
	for _, n := range each {
		if n == 0 {
			idle++
			continue
		}
		all, least, most = all+n, min(least, n), max(most, n)
	}
	switch {
	case all != shards:
		return fmt.Errorf("%d of %d shards are owned: %v", all, shards, each)
	case len(each)-idle != members:
		return fmt.Errorf("%d of %d members own something: %v", len(each)-idle, members, each)
	case most-least > 1:
		return fmt.Errorf("members own from %d to %d shards: %v", least, most, each)
	}
	return nil
}
