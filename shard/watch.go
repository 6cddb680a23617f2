package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// WatchConfig describes an observer, which follows a group's assignment without taking part.
// Routers use it. Set Store and call [WatchConfig.Watch] or [WatchConfig.Read].
type WatchConfig struct {
	// Store is as in the members' Config. Required.
	Store func(name string) (leaderelection.RaceDecider, error)

	// PollInterval is how often the observer asks for a newer assignment if the store does
	// not push. Zero means 7.5 s.
	PollInterval time.Duration

	// MaxClockSkew, ClockPolicy, Clock and Logger are as in Config. All optional.
	MaxClockSkew time.Duration
	ClockPolicy  leaderelection.ClockPolicy
	Clock        clocks.Clock
	Logger       *slog.Logger
}

// Watch follows the group until ctx ends. It calls cb with the first assignment found and with each
// newer one, one call at a time and in order. Assignments that come while cb runs are merged. If
// the assignment cannot be read or understood, Watch logs that and tries again. It returns
// context.Cause(ctx), or an error at once if the WatchConfig is wrong.
func (w WatchConfig) Watch(ctx context.Context, cb func(ctx context.Context, a *Assignment)) error {
	var faults []error
	if w.Store == nil {
		faults = append(faults, errors.New("the Store is nil: it returns the decider of each record"))
	}
	if cb == nil {
		faults = append(faults, errors.New("the callback given to Watch is nil"))
	}
	// What the election's Watch refuses. It does nothing else: its ctx has ended.
	err := w.hint(struct{ leaderelection.RaceDecider }{}).Watch(ended, func(context.Context, leaderelection.RaceEntry) {})
	if !errors.Is(err, context.Canceled) {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return wrong(err)
	}
	if w.PollInterval == 0 {
		w.PollInterval = leaderelection.DefaultTermLength / 2
	}
	s := newStores(w.Store)
	if err := s.distinct(ctx, assignmentName, coordinatorName); err != nil {
		if errors.Is(err, context.Cause(ctx)) {
			return err
		}
		return wrong(err)
	}
	return w.follow(ctx, s, s.deciders[assignmentName], s.deciders[coordinatorName], cb)
}

// hint returns the observer of the record that tells of newer assignments.
func (w *WatchConfig) hint(d leaderelection.RaceDecider) leaderelection.WatchConfig {
	return leaderelection.WatchConfig{Decider: d, PollInterval: w.PollInterval, MaxClockSkew: w.MaxClockSkew, ClockPolicy: w.ClockPolicy, Clock: w.Clock}
}

// follow calls cb for each newer assignment. If the store must be polled, it polls a small record,
// the coordinator's.
func (w *WatchConfig) follow(ctx context.Context, s *stores, d, coordinator leaderelection.RaceDecider, cb func(context.Context, *Assignment)) error {
	began := time.Now()
	fails := loop.Outage{Over: "the assignment is followed again", To: func(level slog.Level, msg string, args ...any) {
		warnings.Or(w.Logger).Log(ctx, level, "shard: "+msg, args...)
	}}
	failed := func(kind string, err error) {
		fails.Failed(time.Since(began), kind, "the assignment cannot be followed", "err", err)
	}
	f := follower{stores: s, assignment: d, unit: w.PollInterval, within: w.PollInterval, calm: math.MaxInt64, look: make(chan struct{}, 1)}
	hint, heard := w.hint(d), f.hear
	if _, pushes := d.(leaderelection.ChangeFeed); !pushes {
		hint, heard = w.hint(coordinator), f.hearCoordinator
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		keepWatching(ctx, hint, w.PollInterval, func(e leaderelection.RaceEntry) {
			fails.Worked(time.Since(began), "watching")
			heard(e)
		}, func(err error) { failed("watching", err) })
	}()
	defer func() { <-watched }()
	var known leaderelection.ElectionNumber
	f.run(ctx, func(a *assignment, err error) {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failed("reading", err)
			return
		case a.number() > known:
			known = a.version
			cb(ctx, a.public())
		}
		fails.Worked(time.Since(began), "reading")
	})
	return context.Cause(ctx)
}

// follower reads the assignment whenever it may be another, for an observer or a session.
type follower struct {
	stores     *stores
	assignment leaderelection.RaceDecider
	unit       time.Duration // pauses before a read is tried again are parts of it
	within     time.Duration // a read may take so long
	calm       time.Duration // after that it reads, though nothing was reported
	moving     time.Duration // the same while shards move; 0: calm
	look       chan struct{} // the assignment may have changed
	told       atomic.Uint64 // the greatest version that was reported
	newest     atomic.Uint64 // the greatest that was read
}

// hear takes in that the assignment is e now. Only a read shows it.
func (f *follower) hear(e leaderelection.RaceEntry) { f.note(e.ElectionNumber) }

// hearCoordinator is hear for the coordinator's record, which has the newest version.
func (f *follower) hearCoordinator(e leaderelection.RaceEntry) {
	if v, says := coordinatorVersion(&e); !says || uint64(v) > f.newest.Load() {
		f.note(v)
	}
}

// keepWatching calls hear for each record that w reports, until ctx ends. It begins again after a permanent
// error, which may pass nevertheless.
func keepWatching(ctx context.Context, w leaderelection.WatchConfig, pause time.Duration, hear func(leaderelection.RaceEntry), failed func(error)) {
	for ctx.Err() == nil {
		err := w.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) { hear(e) })
		if ctx.Err() == nil {
			failed(err)
			sleep(ctx, pause)
		}
	}
}

func (f *follower) note(version leaderelection.ElectionNumber) {
	for told := f.told.Load(); uint64(version) > told && !f.told.CompareAndSwap(told, uint64(version)); told = f.told.Load() {
	}
	nudge(f.look)
}

// run reads at once, and whenever there may be news, until ctx ends. It hands each result to got.
func (f *follower) run(ctx context.Context, got func(a *assignment, err error)) {
	var pause time.Duration
	wait, timer := f.calm, time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		var a *assignment
		e, err := call(ctx, f.stores, assignmentName, f.within, current(f.assignment))
		if err == nil {
			a, err = readAssignment(e)
		}
		if v := uint64(a.number()); v > f.newest.Load() {
			f.newest.Store(v)
			if wait = f.calm; f.moving > 0 && a.moves() {
				wait = f.moving
			}
		}
		got(a, err)
		most := f.unit
		if err != nil {
			most /= 4
		} else if f.newest.Load() >= f.told.Load() {
			pause = 0
			timer.Reset(wait)
			select {
			case <-ctx.Done():
			case <-f.look:
			case <-timer.C:
			}
			continue
		}
		// It has failed, or lags behind what was reported: then only another read can show that.
		pause = min(max(2*pause, f.unit/100), most)
		sleep(ctx, pause)
	}
}

// nudge wakes the one who receives from c, now or when it next does.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) { clocks.System().SleepFor(ctx, d) }

// Read reads the newest assignment once. Use it to inspect a group; to follow it, use Watch. If
// there is no assignment yet, the error wraps [ErrNoGroup]. If the record cannot be understood,
// it wraps [ErrForeign].
func (w WatchConfig) Read(ctx context.Context) (*Assignment, error) {
	e, err := w.record(ctx, assignmentName)
	if err != nil {
		return nil, err
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
	e, err := w.record(ctx, coordinatorName)
	if err != nil || e.Vacant() || w.over(e) {
		return "", err
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
	seats := make([]Seat, min(a.in().seats(), MaxShards)) // to read side by side
	var wg sync.WaitGroup
	turn := make(chan struct{}, maxReads)
	for k := range seats {
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
	e, err := w.record(ctx, seatName(k))
	if err != nil {
		seat.Err = err
		return seat, true
	}
	seat.Session.Number = e.ElectionNumber
	if info, err := readSeat(e); !e.Vacant() && err == nil {
		seat.Member, seat.HostPort, seat.Weight, seat.Capacity, seat.Zone = info.Member, slices.Clone(e.HostPort), info.Weight, info.Capacity, info.Zone
		if seat.Over = w.over(e); !e.Unsynchronized {
			seat.Until = e.TermExpiry
		}
	}
	return seat, e.ElectionNumber != leaderelection.NoElections
}

// record reads a record once.
func (w *WatchConfig) record(ctx context.Context, name string) (*leaderelection.RaceEntry, error) {
	if w.Store == nil {
		return nil, errors.New("shard: the Store is nil: it returns the decider of each record")
	}
	d, err := newStores(w.Store).get(ctx, math.MaxInt64, name)
	if err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	e, err := current(d)(ctx)
	if err != nil {
		return nil, fmt.Errorf("shard: reading %s: %w", name, err)
	}
	return e, nil
}

// over reports whether a term has run out. It never says so of one that no clock counts.
func (w *WatchConfig) over(e *leaderelection.RaceEntry) bool {
	skew, now := w.MaxClockSkew, time.Now()
	if skew == 0 && w.ClockPolicy != leaderelection.SharedClock {
		skew = leaderelection.DefaultMaxClockSkew
	}
	if w.Clock != nil {
		now = w.Clock.Now()
	}
	return !e.Unsynchronized && e.TermExpiry.Add(skew).Before(now)
}
