//go:build go1.25

package memory_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A job that is to run in one place only, tried out without a store.
func Example() {
	candidate := leaderelection.Config{Decider: memory.NewDecider(), LeaderID: "a"}
	err := candidate.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading:", view.ValueInFuture(), "fencing token:", view.ElectionNumber() > 0)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// leading: true fencing token: true
	// error: <nil>
}

// What does the job do when another candidate takes over?
func ExampleDecider_Replace() {
	election := memory.NewDecider()
	candidate := leaderelection.Config{Decider: election, LeaderID: "a"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := candidate.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		rival := election.Entry()
		rival.LeaderID, rival.Incarnation = "rival", "rival's"
		rival.ElectionNumber++
		rival.Extension = 0
		rival.TermExpiry = time.Now().Add(time.Minute)
		election.Replace(rival)

		<-ctx.Done()
		fmt.Println("may act:", view.ValueInFuture())
		return nil
	})
	fmt.Println("ousted:", errors.Is(err, leaderelection.ErrOusted))
	fmt.Println("leader:", election.Entry().LeaderID)
	// Output:
	// may act: false
	// ousted: true
	// leader: rival
}

// A write lands, but its answer is lost. Whoever wrote must read to know.
func ExampleDecider_Inject() {
	election := memory.NewDecider()
	d := election.Handle()
	d.Inject(memory.LoseAnswers().On(memory.Write).Times(1))

	_, err := d.WriteEntry(context.Background(), &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1})
	fmt.Println("lost race:", errors.Is(err, leaderelection.ErrLostRace))
	fmt.Println("lost answer:", errors.Is(err, memory.ErrLost))
	fmt.Println("leader:", election.Entry().LeaderID)
	// Output:
	// lost race: false
	// lost answer: true
	// leader: a
}

// Faults of one's own: every third write is slow, and calls are counted.
func ExampleFaults() {
	d := memory.NewDecider()
	writes := 0
	d.Inject(func(op memory.Op) memory.Fault {
		if op.Kind != memory.Write {
			return memory.Fault{}
		}
		writes++
		if writes%3 == 0 {
			return memory.Fault{AnswerDelay: time.Millisecond}
		}
		return memory.Fault{}
	})
	entry := &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1}
	for range 6 {
		entry.Token, _ = d.WriteEntry(context.Background(), entry)
		entry.Extension++
	}
	fmt.Println("writes:", writes, "extension:", d.Entry().Extension)
	// Output: writes: 6 extension: 5
}
