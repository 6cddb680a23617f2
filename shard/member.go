package shard

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Member is a running member, made by [Config.Start]. Its methods may be called by any
// number of goroutines at once.
type Member struct {
	cfg    Config
	stores *stores
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error

	mu      sync.Mutex
	session SessionID         // the one that is, or the zero value
	owned   map[string]*Owned // its shards, those that are being let go included
	newest  *assignment       // read last
	changed chan struct{}     // it is newer than the last one that Changed was called with

	tracer    *tracer
	disagrees [2]string // how the newest assignment's shards differ from the Config's, as was logged; the session's loop only
}

func start(ctx context.Context, cfg Config, stores *stores) *Member {
	ctx, cancel := context.WithCancelCause(ctx)
	m := &Member{cfg: cfg, stores: stores, cancel: cancel, done: make(chan struct{}), owned: map[string]*Owned{}, changed: make(chan struct{}, 1), tracer: newTracer()}
	go m.tracer.run()
	go func() {
		defer close(m.done)
		told := make(chan struct{})
		go func() {
			defer close(told)
			m.tell(ctx)
		}()
		m.err = m.run(ctx)
		m.tracer.end()
		cancel(nil)
		<-told
	}()
	return m
}

// tell calls Changed, until ctx ends.
func (m *Member) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		}
		if a := m.Assignment(); a != nil && m.cfg.Changed != nil {
			m.cfg.Changed(ctx, a)
		}
	}
}

var errLeft = errors.New("shard: the member has left")

// Leave drains all shards, releases the seat, and returns when that is done: with nil,
// or when ctx has ended with context.Cause(ctx), while the rest goes on without it.
func (m *Member) Leave(ctx context.Context) error {
	m.cancel(errLeft)
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done is closed when the member has left and every OnOwned has returned.
func (m *Member) Done() <-chan struct{} { return m.done }

// Wait waits for Done, and returns what Join would: nil after Leave.
func (m *Member) Wait() error {
	<-m.done
	if errors.Is(m.err, errLeft) {
		return nil
	}
	return m.err
}

// Owned returns the shards that this member may act on now, in the order of their names.
// Each says itself until when.
func (m *Member) Owned() []*Owned {
	m.mu.Lock()
	owned, newest := slices.Collect(maps.Values(m.owned)), m.newest
	m.mu.Unlock()
	owned = slices.DeleteFunc(owned, func(o *Owned) bool { return !o.ValueInFuture() })
	if newest != nil {
		slices.SortFunc(owned, func(a, b *Owned) int { return newest.shards.index(a.name) - newest.shards.index(b.name) })
	}
	return owned
}

// Shard returns the shard with a name, and whether this member may act on it now.
func (m *Member) Shard(name string) (*Owned, bool) {
	m.mu.Lock()
	o := m.owned[name]
	m.mu.Unlock()
	return o, o != nil && o.ValueInFuture()
}

// Session returns this member's session, and the zero value while it has no seat.
func (m *Member) Session() SessionID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session
}

// Assignment returns the newest assignment that this member has read, or nil.
func (m *Member) Assignment() *Assignment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest.public()
}

// run takes one seat after the other, until ctx ends. Each is a session.
func (m *Member) run(ctx context.Context) error {
	pause := m.cfg.TermLength / 100
	for worked := false; ; {
		sat, err := m.sit(ctx)
		switch worked = worked || sat; {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, leaderelection.ErrPermanent) && !worked:
			return err
		case sat:
			pause = m.cfg.TermLength / 100
		case !errors.Is(err, errTaken):
			m.cfg.Logger.Warn("shard: no seat", "id", m.cfg.MemberID, "err", err)
			pause = min(2*pause, m.cfg.TermLength/2)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

var (
	errTaken   = errors.New("shard: the seat was taken by another member")
	errSession = errors.New("shard: the session has ended")
)

// sit takes the first seat that is free, and returns when its session has ended and the
// seat is released, with whether there was one.
func (m *Member) sit(ctx context.Context) (sat bool, err error) {
	seat, d, err := m.findSeat(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg := m.cfg.election(d)
	if cfg.ConnectionParams, err = m.info(nil); err != nil {
		return false, err
	}
	campaigns := make(chan *leaderelection.Campaign, 1)
	cfg.OnElected = func(ctx context.Context, view *leaderelection.TimeView) {
		sat = true // read after the campaign has ended
		newSession(m, <-campaigns, seat, ctx, view).run()
		cancel(errSession)
	}
	cfg.LeaderChanged = func(_ context.Context, e leaderelection.RaceEntry) {
		if e.LeaderID != cfg.LeaderID && !m.free(&e) {
			cancel(errTaken)
		}
	}
	cfg.Trace = m.cfg.Trace
	campaign, err := cfg.Start(ctx)
	if err != nil {
		return false, err
	}
	campaigns <- campaign
	go m.giveUp(ctx, campaign, cfg.LeaderID, seatName(seat), d, cancel)
	err = campaign.Wait()
	return sat, err
}

// giveUp ends a campaign for a seat that another holds. LeaderChanged tells of that too,
// but not if the record looked as if it was over then, and was extended after all, nor if
// a feed had told of a newer one that was undone.
func (m *Member) giveUp(ctx context.Context, campaign *leaderelection.Campaign, id, name string, d leaderelection.RaceDecider, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.cfg.TermLength / 2):
		}
		if campaign.Status() != leaderelection.Following {
			return // run looks after it
		}
		e, err := call(ctx, m.stores, name, m.cfg.TermLength/4, current(d))
		if err == nil && e.LeaderID != id && !m.free(e) && campaign.Status() == leaderelection.Following {
			cancel(errTaken)
		}
	}
}

// findSeat returns the first seat that nobody holds: one that was given up or is over, or
// the one after the last.
func (m *Member) findSeat(ctx context.Context) (int, leaderelection.RaceDecider, error) {
	seats := map[string]int{} // those that are held, by Incarnation: a campaign is for one seat
	for k := 0; ; k++ {
		d, err := m.stores.get(ctx, m.cfg.TermLength/4, seatName(k))
		if err != nil {
			return 0, nil, err
		}
		e, err := call(ctx, m.stores, seatName(k), m.cfg.TermLength/4, current(d))
		if err != nil {
			return 0, nil, fmt.Errorf("looking at %s: %w", seatName(k), err)
		}
		if m.free(e) {
			return k, d, nil
		}
		if other, twice := seats[e.Incarnation]; twice && e.Incarnation != "" {
			return 0, nil, fmt.Errorf("%w: %q and %q: %w", errOneRecord, seatName(other), seatName(k), leaderelection.ErrPermanent)
		}
		seats[e.Incarnation] = k
	}
}

// free reports whether a seat's record says that nobody holds it: given up, or over. One
// that is not compared with clocks is over when a coordinator has sealed it.
func (m *Member) free(e *leaderelection.RaceEntry) bool {
	return e.Vacant() || !e.Unsynchronized && !m.cfg.Unsynchronized && m.cfg.Clock.Now().After(e.TermExpiry.Add(m.cfg.MaxClockSkew))
}

// seatInfo is what a seat's record says of the member that holds it, in its
// ConnectionParams.
type seatInfo struct {
	Form     string `json:"form"`
	Member   string `json:"member"`
	Weight   int    `json:"weight"`
	Capacity int    `json:"capacity,omitempty"`
	Zone     string `json:"zone,omitempty"`
	// LetGo are the tokens of shards that the session has let go, for as long as the
	// assignment names them.
	LetGo map[string]uint64 `json:"let_go,omitempty"`
}

const seatForm = "seat/1"

func (m *Member) info(letGo map[string]uint64) ([]byte, error) {
	return json.Marshal(seatInfo{seatForm, m.cfg.MemberID, m.cfg.Weight, m.cfg.Capacity, m.cfg.Zone, letGo})
}

// readSeat returns what a held seat's record says.
func readSeat(e *leaderelection.RaceEntry) (*seatInfo, error) {
	var s seatInfo
	dec := json.NewDecoder(bytes.NewReader(e.ConnectionParams))
	if err := dec.Decode(&s); err != nil {
		return nil, fmt.Errorf("the seat of %q cannot be understood: %w: %w", e.LeaderID, err, ErrForeign)
	}
	if s.Form != seatForm || s.Member == "" || s.Weight < 1 || s.Capacity < 0 {
		return nil, fmt.Errorf("the seat of %q cannot be understood: form %q, member %q, weight %d: %w", e.LeaderID, s.Form, s.Member, s.Weight, ErrForeign)
	}
	return &s, nil
}

// candidateID is the LeaderID of one campaign: two members that share a MemberID by
// mistake are two candidates.
func candidateID(member string) string { return member + "#" + rand.Text()[:8] }

// call makes a call of the store for the record with a name, and returns when it is answered or d
// has passed, also if the store does not heed its ctx. If it does so again and again, it is
// not called: what hangs must not pile up.
func call[T any](ctx context.Context, s *stores, name string, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	if !s.begin(name) {
		var none T
		return none, fmt.Errorf("%d calls for %q have not returned: %w", maxCalls, name, errCallsHang)
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		defer s.end(name)
		value, err := f(ctx)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("no answer within %v: %w", d, context.Cause(ctx))
	}
}

func (m *Member) log(level slog.Level, msg string, args ...any) {
	m.cfg.Logger.Log(context.Background(), level, "shard: "+msg, append([]any{"id", m.cfg.MemberID}, args...)...)
}
