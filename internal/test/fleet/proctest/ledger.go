package proctest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

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

// checkLedgers returns what is wrong with what the processes did: a shard that two owned at
// once, a token that did not grow. It also returns the longest time that a shard had no
// owner between two.
func checkLedgers(ledgers map[string][]ownership) (problems []string, idle time.Duration) {
	type its struct {
		ownership
		process string
	}
	shards := map[int64][]its{}
	for process, all := range ledgers {
		for _, o := range all {
			shards[o.Shard] = append(shards[o.Shard], its{o, process})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		all := shards[name]
		slices.SortFunc(all, func(x, y its) int { return cmp.Compare(x.Token, y.Token) })
		latest := all[0] // of those before, the one that acted last
		for i, o := range all[1:] {
			if before := all[i]; o.Token == before.Token {
				problems = append(problems, fmt.Sprintf("shard %d: processes %s and %s both have token %d", name, before.process, o.process, o.Token))
				continue
			}
			gap := time.Duration(o.First - latest.Last)
			if gap < 0 {
				problems = append(problems, fmt.Sprintf("shard %d: process %s acts by token %d, %v before process %s acts for the last time, by token %d", name, o.process, o.Token, -gap, latest.process, latest.Token))
			}
			if idle = max(idle, gap); o.Last > latest.Last {
				latest = o
			}
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
