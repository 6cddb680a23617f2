package feedtest

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

const (
	rounds = 50
	// ceiling is what no median may be above.
	ceiling = 50 * time.Millisecond
	// tries is how often it is measured before a slow median counts: the
	// machine may have been busy with something else.
	tries = 3
)

// Handover measures the time from a leader's leaving to OnElected in another
// candidate that waits, and fails t where the median of 50 is above three times the
// store's own time from a write to its notification, plus one write, all measured in
// the same run; or above 50 ms.
func Handover(t *testing.T, newElection NewElection) {
	t.Helper()
	for try := 1; ; try++ {
		write, notify := baseline(t, newElection)
		got := handover(t, newElection)
		bound := min(3*notify+write, ceiling)
		t.Logf("median of %d: write %v, write to notification %v, release to OnElected %v (may be %v)", rounds, write, notify, got, bound)
		if got <= bound {
			return
		}
		if try == tries {
			t.Fatalf("release to OnElected takes %v, and may take %v", got, bound)
		}
	}
}

// baseline is what the store itself takes.
func baseline(t *testing.T, newElection NewElection) (write, notify time.Duration) {
	handle := newElection(t)
	writer, follower := handle(), handle()
	news := make(chan *leaderelection.RaceEntry, 1)
	go func() {
		defer close(news)
		for e, err := range follower.(leaderelection.ChangeFeed).Changes(t.Context()) {
			if err != nil {
				t.Errorf("the feed failed: %v", err)
				return
			}
			news <- e
		}
	}()
	e := await(t, "the feed's first entry", news)
	var writes, notifications []time.Duration
	for number := range uint64(rounds) {
		next := record(number + 1)
		next.Token = e.Token
		begin := time.Now()
		if _, err := writer.WriteEntry(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		writes = append(writes, time.Since(begin))
		for e = await(t, "the news of a write", news); e == nil || e.Compare(next) < 0; {
			e = await(t, "the news of a write", news)
		}
		notifications = append(notifications, time.Since(begin))
	}
	return median(writes), median(notifications)
}

func handover(t *testing.T, newElection NewElection) time.Duration {
	handle := newElection(t)
	handles := []leaderelection.RaceDecider{handle(), handle()} // of two processes
	elected := make(chan reign, 1)
	begin := func(i int) *candidate {
		return start(t, leaderelection.Config{
			Decider: handles[i%2], LeaderID: []string{"even", "odd"}[i%2], TermLength: time.Minute,
		}, elected)
	}
	leader := begin(0)
	await(t, "the first reign", elected)
	var took []time.Duration
	for i := range rounds {
		standby := begin(i + 1)
		await(t, "the standby's feed", standby.feedUp)
		left := time.Now()
		leader.leave()
		took = append(took, await(t, "the next reign", elected).at.Sub(left))
		_ = leader.Wait()
		leader = standby
	}
	leader.leave()
	_ = leader.Wait()
	return median(took)
}
