/*
Package shard divides any number of shards among any number of processes: each shard is
owned by one at a time, with a view and a fencing token of its own. What it costs the
store grows with the processes and not with the shards, and it works on every store that
has a leaderelection.RaceDecider.

	err := shard.Config{
		Store: func(name string) (leaderelection.RaceDecider, error) {
			return s3.NewDecider(client, bucket, "orders/"+name, nil), nil
		},
		MemberID: hostname,
		Shards:   shard.Numbered(64),
		OnOwned: func(ctx context.Context, o *shard.Owned) {
			for ctx.Err() == nil && o.ValueInFuture() {
				work(o.Name(), o.Token())
			}
		},
	}.Join(ctx)

It is new, and may change.

# The promise

Of two owners of one shard, [Owned.ValueInFuture] is never true at the same instant, and
the tokens of a shard grow with each change of owner. That rests on the assumptions of
package leaderelection and on nothing else: not on reads that are fresh, and not on there
being one coordinator. A request that was under way when a shard moved is stopped by its
token, at the resource that is written to: see package fence.

# How it works

A member holds a seat: an ordinary election, "seat-0", "seat-1" and so on. The time that
it holds it is its session, named by the seat and the ElectionNumber, and the seat's view is
the session's. What a seat's record says of its member (name, weight, capacity, zone) is in
its ConnectionParams, and so is what the session has let go. Seats are used again.

The members elect a coordinator, another ordinary election. It follows the seats, and
keeps one record, the assignment: which session owns which shard, by which token. The
assignment is replaced by conditional write only, and its version grows. The coordinator's own
record names the newest version, so that a member that polls reads a small record.

# Rules

Each has tests, and mutants that they catch.

 1. A shard is acted on only while the session's view is in the future, and only if the
    newest assignment that the member has read gives it the shard under this session, by a
    token greater than any that the session has let go. A pushed assignment is a reason to
    read.
 2. An assignment older than one already seen is no news.
 3. A shard moves only after the fact that frees it is on record: its session has ended (the
    seat is vacant, or has a greater number), or the seat says that the session has let go of
    that very token. Such a fact never becomes untrue, so knowing it late does no harm.
 4. A new owner's token is greater than the shard's last, also if the shard was gone in
    between: the assignment remembers the greatest token of those that are.
 5. Letting go: the shard's ctx is cancelled, OnOwned has DrainTimeout to return, then the
    shard's view ends, and only then the seat's record says so.
 6. A member that leaves lets OnOwned of all its shards return, and then releases its seat.
    That one write frees them all.
 7. A member whose session has ended stops everything, and takes a seat anew.
 8. The coordinator is not needed for safety. If it is replaced, or frozen for an hour between
    reading and writing, or if there are two, the conditional write is what holds.
 9. A session that is over is ended on record by the coordinator: it wins the seat, with all
    that an election waits for, and releases it at once.
 10. A record that is damaged, or not this group's, is reported and left alone. Members go on
    with what they own while their views last. [Operator.Reset] is for people.
 11. What a seat says it has let go is dropped when the assignment no longer names it.
 12. Each version of the assignment has a random id. If one number has two ids, the store was
    set back: everything is let go, and a new session begins. If the store has lost versions
    that the coordinator still knows, it writes the newest one again, with a greater number.

Of a feed nothing is believed about a session that has not been read: a feed may tell of an
acquisition that is undone, with a number that was skipped; the next one may take a smaller
number, and then a session that seemed to be over is alive. Of a session that was read a push
is enough, since a member writes that it has released, or let go, only when that is true
already.

# How many shards

The assignment is one record. The room for it, MaxAssignment, is less than what any store of
this library takes as it comes: the least is that of Kubernetes, 256 KiB for the annotations
of one Lease. [Shards.Size] estimates what an assignment takes: with 10 members, 17 KB for
10,000 numbered shards and 130 KB for 100,000; names cost what they do compressed. Start
refuses what does not fit, and says how many would. The coordinator logs when four fifths of
the room are used. If an assignment has become too large nothing moves any more, not even
what was a crashed member's. Config.MaxAssignment is for a store that is set to take less.

# What it promises not

After a crash the shards of a member are owned again after about TermLength + MaxClockSkew,
on a store that must be polled up to two PollIntervals later, and a term later if it was the
coordinator that crashed. While there is no coordinator, nothing moves; owners go on. A change
of owner takes up to a second, since a seat's record is not written more often than that.

A Store that hangs, or fails, for one name keeps nobody from the other records: views end as
they would, owners go on, and Leave does not wait for it. But a coordinator does not see the
members on that seat and beyond until it returns.
*/
package shard
