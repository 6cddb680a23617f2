/*
Package leaderelection elects one of many processes as the leader, by a lease on
one record in a store that they already have, and gives the leader a view of time
that reports whether it may still act.

	err := leaderelection.Config{
		Decider:      decider, // the record: an object, an item, a key, a row, a file
		LeaderID:     "worker-7",
		MaxClockSkew: time.Second,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			for ctx.Err() == nil && view.ValueInFuture() {
				actOnce(view.ElectionNumber())
			}
		},
	}.Acquire(ctx)

[Config.Acquire] campaigns until its ctx ends, [Config.Start] does the
same in the background ([Campaign.Leadership] waits until it leads), [Config.Run] runs one job as leader.
[Config.Once] runs one at most once in a
period, and [Config.TryAcquire] leads now or not at all. [WatchConfig] follows an election without taking part. [Transfer], [StepDown] and [Reset] are for operators. Stores
are in the packages below deciders; deciders/memory is for unit tests.

# Terms

An election is one record in one store. Whoever takes part is a candidate, and campaigns. A
leader holds the record for a term ([Config].TermLength), and extends it about
twice in one. What lies between winning and losing is a leadership. Each has one
[ElectionNumber], greater than that of every leadership before it: the fencing token. A
record without a leader is vacant. Releasing leaves a vacant record behind. Nothing ever
deletes a record, since it remembers the number. Every Start makes up an incarnation, a
random id. By it a campaign knows its own writing, also when the store's answer was lost,
and two processes that were given one LeaderID by mistake are told apart.

# The promise

Two views are never true at once. [TimeView.ValueInFuture] of two candidates of
one election is not true at the same instant, whatever hangs, lies, repeats itself,
comes late, drifts, is paused, stops or dies. That rests on three things only:

  - The store's conditional write is atomic: of two writes that are conditional on
    the same version at most one succeeds. Reads and feeds may be stale.
  - The store keeps what it has acknowledged: it is not set back, and nobody deletes the
    record. A candidate that has not seen more would begin at number 1 again.
  - Every candidate's wall clock is within MaxClockSkew (S) of true time, and all are
    configured with that S. If all share one clock, Config.SharedClock says so, and S is zero.

The argument is short. A leader writes TermExpiry = its clock + T, read before the
request. Its view ends when its clock shows TermExpiry - S: by then true time is
at most TermExpiry. A challenger writes only when its own clock shows TermExpiry +
S: by then true time is at least TermExpiry. Were either margin left out, the views
could overlap by the skew between the two clocks.

# What holds it up

Views. The view moves only when the very write that moves it is confirmed. It ends
by whichever comes first, the wall clock or the monotonic clock. So a wall clock that
is set back cannot lengthen it. Nor can a machine's suspension, during which
monotonic time stands still. Once seen over, a view stays over, and the next leadership has
another one. So what is left running of an earlier leadership stays fenced off when the
same process is elected again. The leader's ctx is cancelled when the view ends, by
a goroutine that waits for no store and no user code. If the machine was suspended, or the
clock stepped, that takes up to a second. ValueInFuture is the hard promise, ctx the
convenient one.

Answers. A write whose answer is lost, late or "lost race" is an open question, and
the record answers it. If it bears this campaign's incarnation and that write's
TermExpiry, the write happened. So a lost answer does not cost a healthy leader its
leadership, nor does a client library's own retry of a write that had landed. Only a newer
record of another incarnation does, and that ends view and ctx at once.

Order. Every write, whoever makes it, raises the pair (ElectionNumber, Extension).
An older record, read or pushed, is never news. A new leadership takes the greatest
number ever seen plus one. It may skip numbers, also if a store was restored from a backup,
and does not repeat them.

Campaigning. A held record may be acquired at TermExpiry + S, and only after it was read
again at that time. So after a crash nobody leads for T/2 + 1.5 S to T + S where clocks agree,
and, where two clocks are each off by S, for up to 2 S less or more: T + 3 S at the most, and
what the store takes. That holds for the very first attempt too. A vacant one may be acquired
at once, unless it is reserved for a Successor. One's own record, left over from a
leadership that ended, may be acquired as soon as none of that leadership's callbacks runs
any more.

Holds. A leadership of a candidate with a Hold (H, Config.Hold) keeps the record for H from
when its acquisition began, be it led, left by a dead leader, or released: everybody else, and
the same candidate after its release, acquires it at that time + S at the earliest. The record
says for how much longer than TermExpiry, in a field that must be understood: a build that
does not know it refuses the record. Without comparable clocks the rest of H counts
from when the record was first seen. An acquisition that led to nothing is released without a hold.

Leaving. Leadership that is given up by choice (ctx ended, [Campaign.Resign],
StepDown, Transfer, not healthy) is drained. The leader's ctx is cancelled. The lease
is kept, and extended, until OnElected and OnOusting have returned, for at most
DrainTimeout. Then the view is ended, and then the record is released. Never is it
released while leader's work may still be running. Callbacks that overrun DrainTimeout let the
term run out by itself. A campaign that ends gives up a release that cannot be written
within 10 s.

Preferred leaders. A candidate whose Config.Priority is greater than the leader's, and that
has stood by for a term, healthy and with a right clock, asks the leader to hand over to it:
the request of Transfer, granted like it. So nobody leads for no longer than a hand-over. It
asks once in a leadership, and only if that has lasted for about four terms, as the count of
its extensions shows: so a preferred candidate that fails again and again costs one hand-over in that
time. A leader with a Hold is not asked.

Pace. Extensions begin when half of the view's span, (T - S)/2, or Config.ExtendEvery, has
passed since the last confirmed one began. Half of that, for a term after a store call has
failed or was slow. One store call is made at a time, each given a quarter
of a term. One that does not come back is abandoned. Failures are retried with a
pause that doubles: at most four writes a second, and four reads, which ask what became
of the writes. What a leader has to tell its clients
([Campaign.Announce]) is one extension more, at most one a second. A standby on a healthy feed asks the
store nothing; on a polled store it reads twice a term. At TermExpiry + S, when a feed may
have withheld something, a standby reads.

# Clocks

That clocks are within MaxClockSkew is an assumption, and is checked where it can be.
A store that stamps its versions made the stamp while the write's request was out.
So if the stamp lies outside of that time by more than S, the candidate's clock is
proved wrong. Such a candidate does not campaign, and its acquisition begins no leadership.
A leader steps down at once, with [ErrClockSkew]. The same goes for what a clock knows of
itself, see clocks.Kernel.

An acquisition may prove to have been made too early, before the term of the one who led was
over. Then it is kept unused for a whole term and the allowance for drift, by the monotonic
clock, also if the wall clock has been set right meanwhile: by then the other's view is over
for sure. Then it is released, before the campaign ends if it is told to stop. So a clock
that jumps ahead by more than S may cost about one term without a leader. With T = 15 s and
S = 1 s, 11 s are measured for a leader that was robbed a second after its extension. The
most is T and the allowance, until others see the release. It happens once for each jump,
since that candidate then knows.

What the check leaves is the time that the request was out, and what the store cuts off its
stamp: two views can then overlap by no more than that. It takes the store's clock for
the true one. If that is not so, Config.WarnOnClockSkew makes it a warning.

For machines whose clocks cannot be trusted at all there is Config.Unsynchronized.
Then the view runs on the leader's monotonic clock. A challenger waits on its own
until it has not seen the record change for T and an allowance for drift (S, or a hundredth
of T if that is more). When the challenger sees a change, its write has begun
already. So by then the leader's view, counted from before the write, is over, unless one of
the two clocks runs faster than the other by more than the allowances. The record says that
it is so, and candidates that trust their clocks go by it as well.

# Callbacks

OnElected runs in a goroutine of its own, once for each leadership, never while an
earlier OnElected or OnOusting of the same campaign is still running. When it returns while
leading, the lease is kept: many only start something there. OnOusting runs once
for each OnElected, as soon as the leader's ctx was cancelled, without waiting for
OnElected; its own ctx lives for DrainTimeout. LeaderChanged runs for each new
leadership and each vacancy, one call at a time and in order; a slow one delays only the
next. Acquire, Wait and Run return after every callback has, and never wait for a
store call that hangs. No callback is required: [Campaign.Leadership] gives what OnElected
is called with. But only a callback keeps the lease while work winds down: the view outlives ctx then, on purpose. ctx says
"begin nothing more", and the view "you may still act". So a loop asks both. context.Cause of the leader's ctx says why it ended: [ErrOusted],
[ErrExpired], [ErrResigned], [ErrUnhealthy], [ErrClockSkew], or the cause of the ctx given to Start. Right after
a suspend the view is over before ctx is, and the cause is nil still. A callback that panics ends
the process, as in any goroutine.

# What is not promised

That the leader's last act took place within its view. Between asking the view and
the act's arrival at its resource anything may pass: the process may be paused, the
request may linger in a network. No lease can exclude that. It is what the fencing token
is for: send [TimeView.ElectionNumber] along with every act, and let the resource
refuse a number smaller than the greatest it has seen. (Martin Kleppmann, "How to do
distributed locking", 2016; Gray and Cheriton, "Leases", SOSP 1989.)

That there is a leader. While the store is out of reach nobody can be elected, and
a leader's view ends; between two leaders there is a gap of 2 S at least after a
crash. Nor that clocks are right: beyond MaxClockSkew the promise is void, but for
a leader's own clock that is set back, which the monotonic end catches, and for
what a store's stamps show.

That a store keeps what it acknowledged. Each decider's package says under which
settings its store may lose a confirmed write; such a loss may be two leaders, and fencing tokens
that begin again. Candidates and observers
that know of a newer record log a warning, when reads have returned an older one for more than a term.
*/
package leaderelection
