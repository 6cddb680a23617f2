package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// ErrNoGroup means that there is no assignment yet.
var ErrNoGroup = errors.New("shard: the group has no assignment yet: start its members first")

// ErrNoShard means that the group does not have the shard.
var ErrNoShard = errors.New("shard: the group has no shard")

// Operator asks a group for changes. Any process may use it.
//
// Its methods return when the change is on record. The coordinator carries it out later: it sees
// the change at once on a store that pushes, and within a term on other stores. You may repeat
// each call: if nothing changes, nothing is written.
type Operator struct {
	// Store is as in the members' Config. Required.
	Store func(name string) (leaderelection.RaceDecider, error)
}

// Pin gives a shard to the member with the given MemberID, whatever the balance says, as long as
// there is such a member and it has room. If the group does not have the shard, the error wraps
// [ErrNoShard].
func (o Operator) Pin(ctx context.Context, shard, member string) error {
	if err := checkName("the member", member); err != nil {
		return fmt.Errorf("shard: pinning %q: %w", shard, err)
	}
	return o.change(ctx, fmt.Sprintf("pinning %q to %q", shard, member), func(a *assignment) error {
		i := a.shards.index(shard)
		if i == none {
			return fmt.Errorf("%w %q", ErrNoShard, shard)
		}
		if a.pins == nil {
			a.pins = map[string]string{}
		}
		a.pins[a.shards.Name(i)] = member
		return nil
	})
}

// Unpin leaves a shard to the balance again. If the group does not have the shard, and the shard is
// not pinned either, the error wraps [ErrNoShard].
func (o Operator) Unpin(ctx context.Context, shard string) error {
	return o.change(ctx, fmt.Sprintf("unpinning %q", shard), func(a *assignment) error {
		name := a.shards.canonical(shard)
		if _, pinned := a.pins[name]; !pinned && a.shards.index(name) == none {
			return fmt.Errorf("%w %q", ErrNoShard, shard)
		}
		delete(a.pins, name)
		return nil
	})
}

// Drain moves the shards of the member with the given MemberID to other members. Use it before
// maintenance. The member keeps the shards that are pinned to it, and those for which no other
// member has room.
func (o Operator) Drain(ctx context.Context, member string) error {
	if err := checkName("the member", member); err != nil {
		return fmt.Errorf("shard: drain: %w", err)
	}
	return o.change(ctx, fmt.Sprintf("draining %q", member), func(a *assignment) error {
		if i, found := slices.BinarySearch(a.drained, member); !found {
			a.drained = slices.Insert(a.drained, i, member)
		}
		return nil
	})
}

// Undrain lets a drained member take its share again.
func (o Operator) Undrain(ctx context.Context, member string) error {
	return o.change(ctx, fmt.Sprintf("ending the draining of %q", member), func(a *assignment) error {
		if i, found := slices.BinarySearch(a.drained, member); found {
			a.drained = slices.Delete(a.drained, i, i+1)
		}
		return nil
	})
}

// change writes a changed assignment, on the condition that nobody else has changed it meanwhile.
func (o Operator) change(ctx context.Context, what string, edit func(*assignment) error) error {
	if o.Store == nil {
		return errors.New("shard: the Operator's Store is nil")
	}
	return newStores(o.Store).change(ctx, what, func(ctx context.Context, d leaderelection.RaceDecider) error {
		return changeOnce(ctx, d, edit)
	})
}

// change calls once again until it has not lost a race.
func (s *stores) change(ctx context.Context, what string, once func(context.Context, leaderelection.RaceDecider) error) error {
	d, err := s.get(ctx, math.MaxInt64, assignmentName)
	if err != nil {
		return fmt.Errorf("shard: %s: %w", what, err)
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		switch err = once(ctx, d); {
		case err == nil:
			return nil
		case !errors.Is(err, leaderelection.ErrLostRace):
			return fmt.Errorf("shard: %s: %w", what, err)
		}
		if sleep(ctx, pause); ctx.Err() != nil {
			return fmt.Errorf("shard: %s: %w", what, context.Cause(ctx))
		}
	}
}

func changeOnce(ctx context.Context, d leaderelection.RaceDecider, edit func(*assignment) error) error {
	e, err := current(d)(ctx)
	if err != nil {
		return err
	}
	a, err := readAssignment(e)
	if err != nil {
		return err
	}
	if a == nil {
		return ErrNoGroup
	}
	next := a.clone()
	if err := edit(next); err != nil || next.same(a) {
		return err
	}
	next.version, next.id = a.version+1, rand.Text()
	return writeNext(ctx, d, next)
}

func writeNext(ctx context.Context, d leaderelection.RaceDecider, next *assignment) error {
	entry, err := next.entry(MaxAssignment)
	if err != nil {
		return err
	}
	entry.TermExpiry = time.Now().UTC()
	_, err = d.WriteEntry(ctx, entry)
	return err
}
