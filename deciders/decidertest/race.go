package decidertest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/c8e606e4/leaderelection"
)

var raceChecks = []check{
	{"OneUpdateWins", func(h *harness) {
		ds := h.handles(h.handle)
		token := h.write(ds[0], nil, h.state(1, 0))
		for round := range h.Rounds {
			entry := h.racerEntry(uint64(round + 2))
			outcomes := h.race(ds, token, entry)
			token = h.judge(round, ds[round%len(ds)], outcomes, entry)
		}
	}},
	{"OneCreationWins", func(h *harness) {
		for round := range max(1, h.Rounds/4) {
			handle := h.handle
			if round > 0 {
				handle = h.newElection(h.TB)
			}
			ds := h.handles(handle)
			var token leaderelection.LeaderToken
			if round%2 == 1 { // the empty election's token and none are to do the same
				token = h.read(ds[0]).Token
			}
			entry := h.racerEntry(1)
			h.judge(round, ds[1], h.race(ds, token, entry), entry)
		}
	}},
	// Each of many counts up by one, reading and writing until it has won; in the
	// end the count must be right. That tries tokens of all ages against each other.
	{"NoUpdateIsLost", func(h *harness) { h.countUpTogether(1) }},
	// So do these, who go on with the token that their write has returned, as a leader does. A
	// token that is not of the very version that was written replaces another's, unseen.
	{"WinnersGoOn", func(h *harness) { h.countUpTogether(2) }},
}

// handles returns a few handles, for racers to share: several on one handle, and
// several handles, are both to be tried.
func (h *harness) handles(handle func() leaderelection.RaceDecider) []leaderelection.RaceDecider {
	ds := make([]leaderelection.RaceDecider, max(2, min(5, h.Writers/2)))
	for i := range ds {
		ds[i] = handle()
	}
	return ds
}

// outcome is how one racer's write ended.
type outcome struct {
	token leaderelection.LeaderToken
	err   error
}

// race lets all racers write at once, each its own entry, all with one token.
func (h *harness) race(ds []leaderelection.RaceDecider, token leaderelection.LeaderToken, entry func(racer int) *leaderelection.RaceEntry) []outcome {
	ctx, cancel := h.soon()
	defer cancel()
	outcomes := make([]outcome, h.Writers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range outcomes {
		e := with(token, entry(i))
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-start
			outcomes[i].token, outcomes[i].err = ds[i%len(ds)].WriteEntry(ctx, e)
		}()
	}
	close(start)
	wg.Wait()
	return outcomes
}

// judge looks at the outcomes of a race and at the record. Exactly one racer may
// have won. A store that is pressed hard may also answer with errors that leave
// the outcome open; then one of those racers may be the winner. It returns the
// record's token.
func (h *harness) judge(round int, d leaderelection.RaceDecider, outcomes []outcome, entry func(racer int) *leaderelection.RaceEntry) leaderelection.LeaderToken {
	h.Helper()
	var won, open []int
	for i, o := range outcomes {
		switch {
		case o.err == nil && o.token == nil:
			h.Fatalf("round %d: racer %d got neither a token nor an error", round, i)
		case o.err == nil:
			won = append(won, i)
		case errors.Is(o.err, leaderelection.ErrPermanent):
			h.Fatalf("round %d: racer %d: %v", round, i, o.err)
		case !errors.Is(o.err, leaderelection.ErrLostRace):
			h.Logf("round %d: racer %d: %v", round, i, o.err)
			open = append(open, i)
		}
	}
	if len(won) > 1 {
		h.Fatalf("round %d: %d of %d racers won (%v); at most one may: the conditional write is not atomic", round, len(won), len(outcomes), won)
	}
	candidates := won
	if len(won) == 0 {
		candidates = open
	}
	if len(candidates) == 0 {
		h.Fatalf("round %d: every one of %d racers lost, with the stored version's token", round, len(outcomes))
	}
	if len(open) > len(outcomes)/2 {
		h.Fatalf("round %d: %d of %d writes ended in errors, the last: %v", round, len(open), len(outcomes), outcomes[open[len(open)-1]].err)
	}
	if len(won) == 1 {
		h.readBack(d, entry(won[0]))
		return outcomes[won[0]].token
	}
	e := h.readSince(d, entry(candidates[0]))
	for _, i := range candidates {
		if differ(e, entry(i)) == "" {
			return e.Token
		}
	}
	h.Fatalf("round %d: nobody won, and those whose writes are open, %v, did not write the record %s", round, open, show(e))
	return nil
}

// racerEntry gives each racer of one round a record of its own: alike in number
// and extension, as those of competing candidates are.
func (h *harness) racerEntry(number uint64) func(racer int) *leaderelection.RaceEntry {
	return func(racer int) *leaderelection.RaceEntry {
		e := h.state(number, 0)
		e.LeaderID = fmt.Sprintf("racer-%d", racer)
		e.Incarnation = e.LeaderID
		return e
	}
}

// countUpTogether has each of the racers win so many times.
func (h *harness) countUpTogether(wins int) {
	ds := h.handles(h.handle)
	h.write(ds[0], nil, h.state(1, 0))
	ctx, cancel := h.soon()
	defer cancel()
	c := h.countUp(ctx, ds, h.Writers, wins)
	if c.failed != nil {
		h.Fatal(c.failed)
	}
	h.judgeCount(ds[0], c)
}

// counted is what counting up has come to.
type counted struct {
	won, open int // writes that succeeded, and those whose outcome is not known
	failed    error
}

// judgeCount fails the test if the record does not show as many writes.
func (h *harness) judgeCount(d leaderelection.RaceDecider, c counted) {
	h.Helper()
	least, most := uint64(c.won), uint64(c.won+c.open)
	e := h.readSince(d, h.state(1, least))
	if e.Extension > most {
		h.Errorf("%d writes that count up by one have succeeded (and %d are open), and the count is %d", c.won, c.open, e.Extension)
	}
	if err := h.isState(e); err != nil {
		h.Error(err)
	}
}

// countUp has racers count up at once, each until it has won so many times.
func (h *harness) countUp(ctx context.Context, ds []leaderelection.RaceDecider, racers, wins int) (all counted) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range racers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := h.count(ctx, ds[i%len(ds)], wins)
			mu.Lock()
			defer mu.Unlock()
			all.won, all.open, all.failed = all.won+c.won, all.open+c.open, errors.Join(all.failed, c.failed)
		}()
	}
	wg.Wait()
	return all
}

// count returns when it has won so many times. It reads when it has not just won.
func (h *harness) count(ctx context.Context, d leaderelection.RaceDecider, wins int) (c counted) {
	var e *leaderelection.RaceEntry
	for c.won < wins {
		if e == nil {
			read, err := d.ReadCurrent(ctx)
			switch {
			case err == nil && read != nil && read.ElectionNumber == leaderelection.NoElections:
				continue // stale: a record was there before the first of them read
			case err == nil:
				err = h.isState(read)
			case ctx.Err() == nil && !errors.Is(err, leaderelection.ErrPermanent):
				continue // a store that is pressed hard may fail
			}
			if err != nil {
				c.failed = fmt.Errorf("ReadCurrent: %w", err)
				return c
			}
			e = read
		}
		next, err := d.WriteEntry(ctx, with(e.Token, h.state(1, e.Extension+1)))
		switch {
		case err == nil && next == nil:
			c.failed = errors.New("WriteEntry returned neither a token nor an error")
			return c
		case err == nil:
			c.won++
			e = with(next, h.state(1, e.Extension+1))
			continue
		case ctx.Err() != nil:
			c.failed = fmt.Errorf("won %d times, not %d, in %v: %w", c.won, wins, h.Patience, err)
			return c
		case errors.Is(err, leaderelection.ErrPermanent):
			c.failed = fmt.Errorf("WriteEntry: %w", err)
			return c
		case !errors.Is(err, leaderelection.ErrLostRace):
			c.open++
		}
		e = nil
	}
	return c
}
