// Package sim runs whole elections of the real code in virtual time, lets
// everything go wrong that can, and judges what happens by true time.
//
// # What it is
//
// A simulation is one election in a testing/synctest bubble: two to six machines
// (host), each with a [Clock] and a [Link] to the store of its own, the candidates
// that run on them (process), perhaps an observer, now and then an operator. The
// candidates are leaderelection.Config as users have it; nothing in the root
// package knows that it is simulated. The store is a [Memory], or any [Store] that
// lives in a bubble: one client for all machines ([On]), or one for each, with a wire
// below them on which requests and answers are lost, late, refused, cut short or
// garbled ([Wired]; package overhttp has those whose client speaks HTTP). Time passes when all sleep, so ten minutes take some
// milliseconds.
//
// Everything that happens is drawn from a seed: [Draw] makes the [Params] of a
// simulation, and its course follows from them. Storms, in which things go wrong,
// take turns with calm, in which nothing does and there must be a leader again
// within a bound that is worked out from the settings (Params.leaderWithin); then
// the others go on suffering while the leader must keep its leadership.
//
// # What goes wrong
//
//   - Clocks are off by up to MaxClockSkew, drift, and are stepped within it.
//     Monotonic clocks run fast or slow, and stand still while a machine is
//     suspended. Processes are frozen, as by SIGSTOP, past their term; also at the
//     worst moments: between a look at the clock and what follows from it, before
//     a request, before its answer is taken in (an ambush).
//
//   - Requests and answers are slow, late, lost with or without a word; a write
//     lands after its caller was told of its failure, or gave it up, or crashed;
//     a client tries again by itself and is refused what it has just written;
//     calls hang and ignore their ctx; machines are cut off; a store says for a
//     while that no retry can help; reads are stale, also those of a replica that
//     is stuck and answers every second one, in calm weather as well.
//
//   - Feeds fail, fall silent, are late, repeat themselves, tell of old records, and
//     of writes before they are committed, also of those that are undone.
//
//   - The store is set back to an earlier record, as from a backup.
//
//   - Processes crash, stop, start again under the same id, or use another's, and
//     with other durations in their Config; callbacks, Trace and Logger get stuck;
//     Healthy says no, or nothing; a clock says of itself that it is off; Resign,
//     Transfer and StepDown come at any time, also from operators whose clock is
//     off by hours, or who ask a dead leader again and again.
//
//   - In simulations of their own: others' tools delete the record, empty it, make it again or edit it,
//     and feeds tell of what is undone, in whose place an operator's request comes.
//
//   - In simulations of their own: clocks that are hours off though they should be
//     within MaxClockSkew, and clocks that nobody promised anything about
//     (the ClockPolicy Unsynchronized).
//
//   - Most processes have a lifeline, on one of two machines: those that crash are proved
//     dead there.
//
//   - Processes have a Hold, a Priority and an ExtendEvery of their own, other ones at each
//     start.
//
// TestSeeds fails where one of these has not happened in any seed at a place where
// it matters: the list is in sim_test.go.
//
// # The judge
//
// The recorder sees every call, every write as it lands, and every callback, in
// true time; that a write has landed it sees in the store itself, not by what the
// client says. It asks every view whether it is in the future whenever that may
// have changed, and at random. It knows the rules, not the code that keeps them: no
// two views at once; a view ends when both the clocks say so and never comes back;
// the leader's ctx is done by then; numbers grow; nobody campaigns too early,
// without having read, or while callbacks run; nothing is released that is not
// one's own; callbacks keep their order; nothing spins, hangs or is left behind.
// The mutants of the root package's TestMutants prove the judge: mistakes that are
// laid over the source when this package's tests are built, each with what the judge
// must say of it.
//
// # Replay
//
// A seed that fails prints the command that replays it, with its trace:
//
//	go test ./internal/test/sim -run TestSeeds -seed 42
//
// -seeds and -first choose how many are simulated, and from which on; `make soak`
// runs many. Two runs of a seed draw the same faults, but goroutines that are woken
// in the same instant run in an order that the Go scheduler chooses, so a rare
// failure may need a few replays (-count 20).
package sim
