/*
Package shard divides shards among processes. One process at a time owns a shard, with a view
and a fencing token for that shard. The load on the store grows with the number of processes,
not with the number of shards. It works on every store that has a leaderelection.RaceDecider.

	err := shard.Config{
		Store: func(name string) (leaderelection.RaceDecider, error) {
			return s3.NewDecider(client, bucket, "orders/"+name, nil), nil
		},
		MemberID: hostname,
		Shards:   shard.Numbered(64),
		OnOwned: func(ctx context.Context, o *shard.Owned) error {
			for ctx.Err() == nil && o.ValueInFuture() {
				work(o.Name(), o.ElectionNumber())
			}
			return nil
		},
	}.Join(ctx)

# The promise

Two owners of one shard never both see [Owned.ValueInFuture] true at the same instant, and the
tokens of a shard grow with each change of owner. That rests on the conditions of package
leaderelection only. It needs neither fresh reads nor a single coordinator. If a request was
under way when its shard moved, its token stops it at the resource: see [Owned.Gate] and package
fence.

# How it works

A member holds a seat. A seat is an ordinary election: "seat-0", "seat-1" and so on. The time
during which a member holds a seat is its session. The session is named by the seat and the
ElectionNumber, and has the seat's view. The seat's record describes its member (name, weight,
capacity, zone) in its ConnectionParams, and lists what the session has let go. Seats are used
again.

The members elect a coordinator, in another ordinary election. It follows the seats, and keeps
one record, the assignment: which session owns which shard, by which token. The assignment is
replaced by conditional writes only, and its version grows. The coordinator's own record names
the newest version, so that a member that polls reads a small record.

# Rules

Each rule has tests, and mutants that they catch.

 1. A member acts on a shard only while its session's view is in the future. The newest
    assignment that it has read must give it the shard under this session, by a token greater
    than any that the session has let go. A pushed assignment is a reason to read.
 2. An assignment that is older than one already seen is not news.
 3. A shard moves only after the fact that frees it is on record. Either its session has ended
    (the seat is vacant, or has a greater number), or the seat says that the session has let
    go of that very token. Such a fact never becomes untrue, so learning it late does no harm.
 4. A new owner's token is greater than the shard's last, even if the shard was gone in
    between: the assignment remembers the greatest token of the shards that are gone. Tokens
    begin with the seconds since 1970, so they do not repeat if the record is deleted or made
    again.
 5. To let a shard go, a member cancels the shard's ctx, and gives OnOwned, and the requests
    that a gate (lehttp.RequireOwner, legrpc's owner interceptors) has let in, DrainTimeout to
    return. Then the shard's view ends, and only then the seat's record says so.
 6. A member that leaves takes nothing new. It lets each shard go when its OnOwned and those
    requests have returned. When all have returned, it releases its seat, and this one write frees the rest.
 7. A member whose session has ended stops everything, and takes a new seat. It does not wait
    for an OnOwned that has not returned.
 8. Safety does not need the coordinator. The coordinator may be replaced, or be frozen for an
    hour between reading and writing, or there may be two: the conditional write protects.
 9. If a session is over, the coordinator ends it on record: it wins the seat, after all that
    an election waits for, and releases it at once.
 10. A record that is damaged, or not this group's, is reported and left alone. Members go on
    with what they own while their views last. [Operator.Reset] is for people.
 11. A seat's entry about a shard that it has let go is dropped when the assignment no longer
    names it.
 12. Each version of the assignment has a random id. If one number has two ids, the store was
    set back: members let everything go, and begin new sessions. If the store has lost
    versions that the coordinator still knows, the coordinator writes the newest one again,
    with a greater number.
 13. If the number of numbered shards changes, a key has another shard. So nothing of the new
    numbering is given out before all of the old one is let go. Every token of the new
    numbering is greater than all tokens of the old one. A member gets only shards of the
    numbering that it knows.

A feed proves nothing about a session that has not been read. It may report an acquisition
that is undone later, with a number that is then skipped. The next acquisition may take a
smaller number, and then a session that seemed to be over is alive. For a session that was
read, a push is enough: a member writes that it has released or let go only when that is true
already.

# How many shards

The assignment is one record. MaxAssignment, the room for it, is less than any store of this
library takes by default. Kubernetes takes the least: 256 KiB for the annotations of one Lease.
[Shards.Size] estimates an assignment. With 10 members it is 17 KB for 10,000 numbered shards,
and 130 KB for 100,000. Names add their compressed size.

Start refuses shards that do not fit, and says how many would. The coordinator logs when four
fifths of the room are used. If an assignment has become too large, nothing moves any more, not
even the shards of a crashed member. Set Config.MaxAssignment if your store takes less.

# What is not promised

How soon a shard has an owner again after a crash:

  - The shards of a crashed member are owned again after about TermLength + MaxClockSkew. It
    takes up to two PollIntervals more if the store must be polled, and a term more if the
    crashed member was the coordinator.
  - With Config.Lifeline it takes a few requests to the store, if only the process has died, and
    the coordinator or the next one runs on its machine. If the store must be polled, it takes
    as long as members need to read the assignment.
  - While there is no coordinator, nothing moves. Owners go on.

A change of owner takes up to a second, since a seat's record is written at most once a second.
When a member has come, or has left in order, the coordinator waits for a fifteenth of a term:
others may come or leave too, or the same member may come back. A member that is back by then, under
its MemberID, gets the shards that it had until it left. If the store must be polled, the coordinator
reads the free seats often meanwhile. A shard that was let go earlier, while others drained, does not
wait.

If Store hangs or fails for one name, the other records still work: views end as they would,
owners go on, and Leave does not wait. But a coordinator does not see the members on that seat
and on later seats until Store returns.

Experimental: the API of this package may change in any minor version, even after v1.
*/
package shard
