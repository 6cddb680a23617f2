package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Pins returns the MemberID of the member to which each pinned shard is pinned: see
// [Operator.Pin].
func (a *Assignment) Pins() map[string]string { return maps.Clone(a.in().pins) }

// Drained returns the MemberIDs of the drained members, in order: see [Operator.Drain].
func (a *Assignment) Drained() []string { return slices.Clone(a.in().drained) }

// Read reads the newest assignment once. Use it to inspect a group; to follow it, use Watch. If
// there is no assignment yet, the error wraps [ErrNoGroup]. If the record cannot be understood,
// it wraps [ErrForeign].
func (w WatchConfig) Read(ctx context.Context) (*Assignment, error) {
	d, err := w.record(ctx, assignmentName)
	if err != nil {
		return nil, err
	}
	e, err := current(d)(ctx)
	if err != nil {
		return nil, fmt.Errorf("shard: reading the assignment: %w", err)
	}
	a, err := readAssignment(e)
	switch {
	case err != nil:
		return nil, fmt.Errorf("shard: %w", err)
	case a == nil:
		return nil, ErrNoGroup
	}
	return a.public(), nil
}

// Coordinator reads the MemberID of the coordinator, or "" if there is none.
func (w WatchConfig) Coordinator(ctx context.Context) (string, error) {
	d, err := w.record(ctx, coordinatorName)
	if err != nil {
		return "", err
	}
	e, err := current(d)(ctx)
	if err != nil {
		return "", fmt.Errorf("shard: reading who coordinates: %w", err)
	}
	if e.Vacant() || !e.Unsynchronized && e.TermExpiry.Add(w.skew()).Before(w.now()) {
		return "", nil
	}
	return memberOf(e.LeaderID), nil
}

// Seat is the content of a seat's record when it was read.
type Seat struct {
	Session  SessionID
	Member   string // its MemberID; empty if nobody has the seat
	HostPort []string
	Weight   int
	Capacity int // 0: no limit
	Zone     string
	// Until is when the session ends if it is not extended, by the member's clock. It is zero
	// if nobody has the seat, or if the member is Unsynchronized.
	Until time.Time
	// Over says that the session's time has run out, though nobody has released the seat.
	Over bool
	// Err says why the record cannot be read. Then only the seat's number is known.
	Err error
}

// maxReads is the number of records that are read at a time.
const maxReads = 16

// Seats reads the records of all seats of the group, in their order. Use it to inspect a group. If
// a record cannot be read, that seat has an Err. Seats fails only if no record can be read, or if
// ctx ends. If a seat's record is not a member's, that seat has no Member.
func (w WatchConfig) Seats(ctx context.Context, a *Assignment) ([]Seat, error) {
	least := 0 // the seats to read side by side: those that the assignment names
	for _, s := range a.in().sessions {
		least = max(least, s.Seat+1)
	}
	least = min(least, MaxShards)
	seats := make([]Seat, least)
	var wg sync.WaitGroup
	turn := make(chan struct{}, maxReads)
	for k := range least {
		wg.Add(1)
		go func() {
			defer wg.Done()
			turn <- struct{}{}
			defer func() { <-turn }()
			seats[k], _ = w.seat(ctx, k)
		}()
	}
	wg.Wait()
	for len(seats) < MaxShards { // a member may have come since
		s, used := w.seat(ctx, len(seats))
		if !used {
			break
		}
		seats = append(seats, s) //nolint:makezero // all of them are filled by now
		var damage *leaderelection.DamagedRecordError
		if s.Err != nil && !errors.As(s.Err, &damage) {
			break // the next would be no better
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("shard: reading the seats: %w", context.Cause(ctx))
	case len(seats) > 0 && !slices.ContainsFunc(seats, func(s Seat) bool { return s.Err == nil }):
		return nil, seats[0].Err
	}
	return seats, nil
}

// seat reads one seat, and reports whether a member ever had it or may have had it.
func (w *WatchConfig) seat(ctx context.Context, k int) (seat Seat, used bool) {
	seat.Session.Seat = k
	d, err := w.record(ctx, seatName(k))
	if err != nil {
		seat.Err = err
		return seat, true
	}
	e, err := current(d)(ctx)
	if err != nil {
		seat.Err = fmt.Errorf("shard: reading %s: %w", seatName(k), err)
		return seat, true
	}
	seat.Session.Number = e.ElectionNumber
	if info, err := readSeat(e); !e.Vacant() && err == nil {
		seat.Member, seat.HostPort, seat.Weight, seat.Capacity, seat.Zone = info.Member, slices.Clone(e.HostPort), info.Weight, info.Capacity, info.Zone
		if !e.Unsynchronized {
			seat.Until = e.TermExpiry
			seat.Over = e.TermExpiry.Add(w.skew()).Before(w.now())
		}
	}
	return seat, e.ElectionNumber != leaderelection.NoElections
}

func (w *WatchConfig) record(ctx context.Context, name string) (leaderelection.RaceDecider, error) {
	if w.Store == nil {
		return nil, errors.New("shard: the Store is nil: it returns the decider of each record")
	}
	d, err := newStores(w.Store).get(ctx, math.MaxInt64, name)
	if err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	return d, nil
}

func (w *WatchConfig) skew() time.Duration {
	if w.MaxClockSkew == 0 && w.ClockPolicy != leaderelection.SharedClock {
		return leaderelection.DefaultMaxClockSkew
	}
	return w.MaxClockSkew
}

func (w *WatchConfig) now() time.Time {
	if w.Clock != nil {
		return w.Clock.Now()
	}
	return time.Now()
}

// memberOf returns the MemberID of a candidateID.
func memberOf(id string) string {
	if i := strings.LastIndexByte(id, '#'); i >= 0 {
		return id[:i]
	}
	return id
}
