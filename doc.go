// Package leaderelection elects one of many processes as the leader. The leader holds a lease
// on one record, in a store that the processes already have. Its view of time reports whether
// it may still act.
//
//	err := leaderelection.Config{
//		Decider:      decider, // the record: an object, an item, a key, a row, a file
//		LeaderID:     "worker-7",
//		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
//			for ctx.Err() == nil && view.ValueInFuture() {
//				actOnce(view.ElectionNumber())
//			}
//		},
//	}.Acquire(ctx)
//
// [Config.Acquire] campaigns until its ctx ends. [Config.Start] does the same in the background,
// and [Campaign.Lead] waits until it leads. [Config.Run] runs one job as leader, [Config.Once]
// at most once in a period. [Config.TryAcquire] leads now or not at all. [WatchConfig] follows
// an election. [Transfer], [StepDown] and [Reset] are for operators. Stores are in the packages
// below deciders; deciders/memory is for unit tests.
//
// # Terms
//
//   - An election is the contest for one record in one store.
//   - The record names the leader. Without one it is vacant, as after a release. The library
//     never deletes it, because it remembers the fencing token.
//   - A candidate takes part: it campaigns. Each acquisition makes up a random id, the
//     incarnation, by which a campaign recognizes its own writes.
//   - The leader is the candidate that holds the record. A leadership lasts from winning it to
//     losing it.
//   - A lease is the right to the record for a term (T, [Config].TermLength). The leader extends
//     it about twice a term.
//   - A view ([TimeView]) reports whether its leader may act now. Each leadership has its own.
//   - The fencing token is a leadership's [ElectionNumber], greater than every earlier one.
//
// # The promise
//
// Two views are never true at once: [TimeView.ValueInFuture] of two candidates of one election
// is not true at the same instant. That holds even if something hangs, lies, repeats itself,
// comes late, drifts, pauses, stops or dies, on three conditions only:
//
//   - The store's conditional write is atomic: of two writes that are conditional on the same
//     version, at most one succeeds. Reads and feeds may be stale.
//   - The store keeps what it has acknowledged: it is not set back, and nobody deletes the
//     record. A candidate that has not seen the record would take it for a new one.
//   - Every candidate's wall clock is within MaxClockSkew (S) of true time, and all candidates
//     are configured with that S. If all share one clock, the ClockPolicy [SharedClock] says
//     so, and S is zero.
//
// Why: a leader reads its clock, then writes TermExpiry = that time + T. Its view ends when its
// clock shows TermExpiry - S: true time is then at most TermExpiry. A challenger writes only
// when its own clock shows TermExpiry + S: true time is then at least TermExpiry. Without
// either margin, the views could overlap by the skew between the two clocks.
//
// # How a leadership goes
//
// Acquiring. A held record may be acquired at TermExpiry + S, after reading it again. A vacant
// one may be acquired at once, unless it is reserved for a Successor, on hold ([Config.Once])
// or emptied. After a crash nobody leads for T/2 + 1.5 S to T + S, if clocks agree. If two
// clocks are each off by S, that is up to 2 S less or more: at most T + 3 S. Added are the
// store's latency, and up to T/20 or a second, over which many standbys spread what they ask.
// With Config.Lifeline, proof of a leader's death ends the wait for its term.
//
// Leading. An extension begins when (T - S)/2, or Config.ExtendEvery, has passed since the last
// confirmed one began. The view moves only when the very write that moves it is confirmed. It
// ends by the wall clock or the monotonic clock, whichever comes first: neither a clock that is
// set back nor a suspended machine lengthens it. Once seen over, it stays over, even if the same
// process is elected again.
//
// Losing. A lost response alone ends no healthy leadership: the record shows whether the write
// happened. A newer record of another incarnation ends view and ctx at once.
//
// Leaving by choice. When the ctx given to Start ends, Healthy fails, or [Campaign.Resign],
// StepDown or Transfer ask for it, the leader drains. Its ctx is cancelled. The lease is kept
// until the callbacks have returned, for at most DrainTimeout. Then the view ends, then the
// record is released: never while leader's work may still be running. If callbacks overrun
// DrainTimeout, the term runs out by itself. A campaign that ends gives up a release that
// cannot be written within 10 s, or within a term if that is shorter.
//
// # Callbacks
//
// OnElected runs once for each leadership, in its own goroutine, never while an earlier
// OnElected or OnOusting of that campaign runs. If it returns while leading, the lease is kept.
// OnOusting runs once for each OnElected, as soon as the leader's ctx is cancelled, without
// waiting for OnElected. Its own ctx lives for DrainTimeout. LeaderChanged runs for each new
// leadership and vacancy that is seen, one call at a time and in order. A slow call delays only
// the next. Acquire, Wait and Run return after every callback has, and never wait for a store
// call that hangs. A callback that panics ends the process.
//
// No callback is required: [Campaign.Lead] returns a [Leadership] with the same ctx and view,
// for which the lease is kept until it is released.
//
// The view is the hard promise, ctx the convenient one. The leader's ctx is cancelled when the
// view ends, without waiting for store or user code. After a suspend or a clock step this takes
// up to a second: the view is already over, and context.Cause still nil. While callbacks wind
// down, the view outlives ctx on purpose: ctx says "begin nothing more", the view "you may still
// act". So a loop asks both. context.Cause says why ctx ended: [ErrOusted], [ErrExpired],
// [ErrResigned], [ErrUnhealthy], [ErrClockSkew], or the cause of Start's ctx.
//
// # Clocks
//
// That clocks are within MaxClockSkew is an assumption. It is checked against the store's
// timestamps of a candidate's own writes, if any, and the error that the Clock knows of itself
// (clocks.Kernel). A leader whose clock is proved wrong steps down at once, with [ErrClockSkew].
// The check is as precise as the request's round trip plus the resolution of the timestamp:
// views can overlap by at most that much. The candidate leaves the record to the others for a
// term and the drift (S, or T/100 if that is more). Then it may lead by its monotonic clock, and
// its record is marked Unsynchronized; with a Hold it stays away. If the store's clock is the
// wrong one, this happens to all.
//
// If no clock can be trusted, use [Unsynchronized]: candidates then measure the term by their
// monotonic clocks. A TermExpiry that no right clock could have written keeps an election
// waiting for two terms (T + 3 S, if that is more), if its record has no Hold.
//
// # What is not promised
//
// That the leader's last act took place within its view. Between asking the view and the act's
// arrival at its resource, the process may pause, or the request linger in a network. No lease
// can exclude that. Send the fencing token with every act, and let the resource refuse a number
// smaller than the greatest it has seen. (Martin Kleppmann, "How to do distributed locking",
// 2016; Gray and Cheriton, "Leases", SOSP 1989.)
//
// That there is a leader. While the store is out of reach nobody can be elected, and a leader's
// view ends. After a crash that no lifeline proves, nobody leads for the time said above.
//
// That clocks are right. Beyond MaxClockSkew the promise is void, except for two cases: a view
// ends in time though the leader's clock is set back, and a store's stamps show some errors.
//
// That a leader is not copied. If a process is cloned while it leads or acquires, as part of a
// virtual machine, both have its view until their next extension, and one of the two extensions
// fails. Clone standbys, or stop it first.
// Even standbys need a kernel that draws new random numbers after the copy, as Linux does if
// the hypervisor gives it a VM generation id. Clones that draw the same numbers, and write in the
// same tick of a coarse clock, cannot be told apart by anybody.
//
// That a store keeps what it acknowledged. Each decider's package says under which settings its
// store may lose a confirmed write. That may mean two leaders, and repeated fencing tokens. A
// candidate that sees that the record has gone back waits for a term and the drift. Candidates
// and observers that know a newer record log a warning when reads have returned an older one for
// more than a term.
//
// More: docs/design.md, docs/rules.md.
package leaderelection
