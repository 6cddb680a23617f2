package shard

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// Member is a running member, made by [Config.Start]. Use it to find out what this process owns,
// and to leave. Its methods may be called by any number of goroutines at once.
type Member struct {
	cfg    Config
	stores *stores
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error

	mu      sync.Mutex
	session SessionID         // the current session, or the zero value
	owned   map[string]*Owned // its shards, including those that are being let go
	newest  *assignment       // the newest that was read

	search seatSearch // of run

	listing chan struct{} // one call of Shards' list at a time

	// Used by the goroutine that runs the member, or by the session's loop while there is one:
	calls    map[string]*Owned // shards whose OnOwned has not returned, by name; their session may be over
	returned chan *Owned       // OnOwned has returned

	hooks     loop.Calls // ShardTrace's
	began     time.Time
	sits      loop.Outage // failures to sit
	reads     loop.Outage // of the assignment
	rounds    loop.Outage // of the coordinator
	lists     loop.Outage // of the shards
	disagrees [2]string   // how the newest assignment's shards differ from the Config's, as was logged; the session's loop only
}

func newMember(cfg Config, stores *stores) *Member {
	m := &Member{
		cfg: cfg, stores: stores, done: make(chan struct{}), owned: map[string]*Owned{},
		calls: map[string]*Owned{}, returned: make(chan *Owned), hooks: loop.Calls{Limit: maxEvents}, listing: make(chan struct{}, 1), began: time.Now(),
	}
	for over, fails := range map[string]*loop.Outage{
		"has a seat again": &m.sits, "the assignment is read again": &m.reads, "the assignment is kept up to date again": &m.rounds, "the shards are listed again": &m.lists,
	} {
		fails.To, fails.Over = m.log, over
	}
	return m
}

// elapsed is the time for an loop.Outage.
func (m *Member) elapsed() time.Duration { return time.Since(m.began) }

func start(ctx context.Context, cfg Config, stores *stores) *Member {
	ctx, cancel := context.WithCancelCause(ctx)
	m := newMember(cfg, stores)
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = m.run(ctx)
		m.await()
		cancel(nil)
	}()
	return m
}

// await waits for every OnOwned that runs on though its session has ended.
func (m *Member) await() {
	timer := time.NewTimer(m.cfg.DrainTimeout)
	defer timer.Stop()
	for len(m.calls) > 0 {
		select {
		case o := <-m.returned:
			delete(m.calls, o.name)
		case <-timer.C:
			m.log(slog.LevelWarn, "the member has left, and waits for OnOwned to return", "shards", slices.Sorted(maps.Keys(m.calls)))
		}
	}
}

var errLeft = errors.New("shard: the member has left")

// Leave drains all shards, releases the seat, and then returns nil. Use it to stop a member in
// order. If ctx ends first, Leave returns context.Cause(ctx), and the member goes on leaving.
func (m *Member) Leave(ctx context.Context) error {
	m.cancel(errLeft)
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the member has left and every OnOwned has returned.
func (m *Member) Done() <-chan struct{} { return m.done }

// Wait waits until the member has left and every OnOwned has returned. It returns nil after Leave,
// and otherwise what Join would.
func (m *Member) Wait() error {
	<-m.done
	if errors.Is(m.err, errLeft) {
		return nil
	}
	return m.err
}

// Owned returns the shards on which this member may act now, in the order of their names. Ask the
// ValueInFuture of each before you act.
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

// Shard returns the shard with the given name, which may be a [KeyName], and whether this member may
// act on it now.
func (m *Member) Shard(name string) (*Owned, bool) {
	m.mu.Lock()
	o := m.owned[name]
	if number, _, qualified := strings.Cut(name, "/"); qualified && o == nil {
		if o = m.owned[number]; o != nil && (o.of == 0 || unqualified(name, o.of) != number) {
			o = nil
		}
	}
	m.mu.Unlock()
	return o, o != nil && o.ValueInFuture()
}

// Session returns this member's session, or the zero value while it has no seat.
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

// run takes one seat after the other, until ctx ends. Each makes a session.
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
			m.search = seatSearch{}
			pause = m.cfg.TermLength / 100
		case errors.Is(err, errTaken):
			pause = m.search.lost(m.cfg.TermLength)
		default:
			m.sits.Failed(m.elapsed(), "", "no seat; trying again", "err", err)
			pause = min(2*pause, m.cfg.TermLength/2)
		}
		sleep(ctx, pause)
	}
}

var (
	errTaken   = errors.New("shard: the seat was taken by another member")
	errSession = errors.New("shard: the session has ended")
)

// sit takes the first free seat. It returns when the session has ended and the seat is released,
// and reports whether there was a session.
func (m *Member) sit(ctx context.Context) (sat bool, err error) {
	seat, d, err := m.findSeat(ctx)
	if err != nil {
		m.search = seatSearch{}
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg := m.cfg.election(d)
	if cfg.ConnectionParams, err = json.Marshal(m.info()); err != nil {
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

// giveUp ends a campaign for a seat that another member holds. LeaderChanged does so too, but not
// in two cases: the record looked over at that time and was extended after all, or a feed had
// reported a newer record that was undone.
func (m *Member) giveUp(ctx context.Context, campaign *leaderelection.Campaign, id, name string, d leaderelection.RaceDecider, cancel context.CancelCauseFunc) {
	for {
		sleep(ctx, m.cfg.TermLength/2)
		if ctx.Err() != nil || campaign.Status() != leaderelection.Following {
			return // run looks after it
		}
		e, err := call(ctx, m.stores, name, m.cfg.TermLength/4, current(d))
		if err == nil && e.LeaderID != id && !m.free(e) && campaign.Status() == leaderelection.Following {
			cancel(errTaken)
		}
	}
}

// seatSearch is the state of a member's search for a seat. Members that start at once all want the
// same seat. A member that has lost it goes on from there after a random time, whose range grows
// with each loss.
type seatSearch struct {
	next   int            // all seats before this one were held a moment ago
	losses int            // the number of seats that another member was faster to take
	held   map[string]int // the seats that are held, by Incarnation: a campaign is for one seat
}

// lost notes that another member was faster. It returns how long to wait before going on.
func (s *seatSearch) lost(term time.Duration) time.Duration {
	s.losses++
	return rand.N(min(term/100<<min(s.losses, 6), term/2))
}

// findSeat returns the first seat that nobody holds: a seat that was given up or whose term is
// over, or the seat after the last.
func (m *Member) findSeat(ctx context.Context) (int, leaderelection.RaceDecider, error) {
	if m.search.held == nil {
		m.search.held = map[string]int{}
	}
	seats := m.search.held
	for k := m.search.next; ; k++ {
		m.search.next = k
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
		if other, twice := seats[e.Incarnation]; twice && other != k && e.Incarnation != "" {
			return 0, nil, fmt.Errorf("%w: %q and %q: %w", errOneRecord, seatName(other), seatName(k), leaderelection.ErrPermanent)
		}
		seats[e.Incarnation] = k
	}
}

// free reports whether a seat's record says that nobody holds it: it was given up, or its term is
// over. An Unsynchronized record is over when a coordinator has sealed it.
func (m *Member) free(e *leaderelection.RaceEntry) bool {
	return e.Vacant() || !e.Unsynchronized && m.cfg.ClockPolicy != leaderelection.Unsynchronized && m.cfg.Clock.Now().After(e.TermExpiry.Add(m.cfg.MaxClockSkew))
}

// seatInfo describes the member that holds a seat, in the ConnectionParams of the seat's record.
type seatInfo struct {
	Form     string `json:"form"`
	Member   string `json:"member"`
	Weight   int    `json:"weight"`
	Capacity int    `json:"capacity,omitempty"`
	Zone     string `json:"zone,omitempty"`
	// Numbered is the number of numbered shards that the member knows, or 0 if the shards have
	// names. It gets shards of that numbering only.
	Numbered int `json:"numbered,omitempty"`
	// Leaving says that the member takes nothing new.
	Leaving bool `json:"leaving,omitempty"`
	// LetGo has the tokens of the shards that the session has let go, as long as the assignment
	// names them. Failed has the error of those on which it could not work.
	LetGo  map[string]uint64 `json:"let_go,omitempty"`
	Failed map[string]string `json:"failed,omitempty"`
}

const seatForm = "seat/1"

// info returns the part of seatInfo that does not change in a session.
func (m *Member) info() seatInfo {
	return seatInfo{Form: seatForm, Member: m.cfg.MemberID, Weight: m.cfg.Weight, Capacity: m.cfg.Capacity, Zone: m.cfg.Zone, Numbered: m.cfg.Shards.numbered}
}

// readSeat returns the seatInfo of a held seat's record.
func readSeat(e *leaderelection.RaceEntry) (*seatInfo, error) {
	var s seatInfo
	dec := json.NewDecoder(bytes.NewReader(e.ConnectionParams))
	if err := dec.Decode(&s); err != nil {
		return nil, fmt.Errorf("the seat of %q cannot be understood: %w: %w", e.LeaderID, err, ErrForeign)
	}
	if s.Form != seatForm || s.Member == "" || s.Weight < 1 || s.Capacity < 0 || s.Numbered < 0 || s.Numbered > MaxShards {
		return nil, fmt.Errorf("the seat of %q cannot be understood: form %q, member %q, weight %d: %w", e.LeaderID, s.Form, s.Member, s.Weight, ErrForeign)
	}
	return &s, nil
}

// candidateID returns the LeaderID of one campaign. So two members that share a MemberID by mistake
// are two candidates.
func candidateID(member string) string { return member + "#" + crand.Text()[:8] }

// memberOf returns the MemberID of a candidateID.
func memberOf(id string) string {
	if i := strings.LastIndexByte(id, '#'); i >= 0 {
		return id[:i]
	}
	return id
}

// call makes a store call for the record with a name. It returns when the call is answered or d has
// passed, even if the store does not respect its ctx. If too many calls for that record hang,
// call makes no more: hung calls must not pile up.
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

// Trace has hooks that a member calls. Use it for metrics, spans and tests; see packages leotel and
// leprom. Every hook may be nil. Hooks are called one at a time, in order, by a goroutine that
// the member does not wait for. A slow hook delays only later hooks. If a hook is stuck and more
// than ten thousand events wait, the oldest are dropped.
type Trace struct {
	// Owns is called when the member has come to own a shard.
	Owns func(Owns)
	// LetGo is called when the member owns a shard no more.
	LetGo func(LetGo)
	// Assignment is called for each newer assignment that the member has read.
	Assignment func(*Assignment)
}

// JoinTraces returns a Trace that calls the hooks of all traces, in their order. A nil Trace has no
// hooks.
func JoinTraces(traces ...*Trace) *Trace {
	all := &Trace{}
	for _, t := range traces {
		if t == nil {
			continue
		}
		all.Owns = loop.InTurn(all.Owns, t.Owns)
		all.LetGo = loop.InTurn(all.LetGo, t.LetGo)
		all.Assignment = loop.InTurn(all.Assignment, t.Assignment)
	}
	return all
}

// Owns describes a shard that a member has come to own, for Trace.Owns.
type Owns struct {
	Owned *Owned
	Time  time.Time // by the member's clock
}

// LetGo describes a shard that a member no longer owns, for Trace.LetGo.
type LetGo struct {
	Owned *Owned
	// Cause is the cause of the shard's ctx: ErrMoved, ErrSetBack, ErrFailed, or why the
	// session has ended.
	Cause error
	// Asked is when OnOwned's ctx was cancelled, and Time when the shard's view had ended, both
	// by the member's clock. They are equal if the session has ended.
	Asked, Time time.Time
}

// maxEvents is how many events may wait for a slow hook.
const maxEvents = 10_000

// tell calls a hook of ShardTrace, if there is one.
func tell[E any](m *Member, hook func(E), e E) {
	if hook != nil {
		m.hooks.Add(func() { hook(e) })
	}
}
