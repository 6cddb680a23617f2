// Package sidecar tells of an election over HTTP: as JSON, as events, as metrics,
// and on a page for people.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/shard"
)

// How much is remembered.
const (
	maxEvents      = 256
	maxLeaderships = 100
)

// Leadership is one that was seen, for the timeline.
type Leadership struct {
	Token    uint64    `json:"token"`
	LeaderID string    `json:"leader_id"`
	From     time.Time `json:"from"` // when it was first seen, or about when it began
	To       time.Time `json:"to,omitzero"`
	End      string    `json:"end,omitempty"` // vacancy, lapse, or superseded; empty: it goes on
}

// Hub keeps what is known of an election, and wakes those who wait for news. Its
// methods may be called by several goroutines at once.
type Hub struct {
	skew time.Duration

	mu          sync.Mutex
	follow      state.Follower
	entry       *leaderelection.RaceEntry
	news        news[state.Event]
	leaderships []Leadership
	lapse       *time.Timer
	lapsedAt    time.Time // when the term of entry ran out, as far as is known here; zero: it has not
	looked      time.Time // when the watch last heard from the store, or that it cannot
	closed      bool
}

// NewHub returns a hub for clocks that are within skew.
func NewHub(skew time.Duration) *Hub {
	return &Hub{skew: skew, news: newNews[state.Event](maxEvents)}
}

// Record takes in a record that is newer than all before.
func (h *Hub) Record(e leaderelection.RaceEntry) {
	if e.ElectionNumber == leaderelection.NoElections {
		return
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entry, h.lapsedAt, h.looked = &e, time.Time{}, now
	if h.lapse != nil {
		h.lapse.Stop()
	}
	event := h.follow.Changed(&e, now, h.skew)
	if !e.Vacant() && !h.closed {
		h.lapse = time.AfterFunc(h.follow.LapseIn(now, h.skew), func() { h.lapsed(&e) })
	}
	h.add(event)
}

// lapsed notes that the term of e has run out, if e is still the newest.
func (h *Hub) lapsed(e *leaderelection.RaceEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.entry != e || h.closed {
		return
	}
	if left := h.follow.LapseIn(now, h.skew); left > 0 { // the clock was set back
		h.lapse = time.AfterFunc(left, func() { h.lapsed(e) })
		return
	}
	h.lapsedAt = now
	h.add(h.follow.Lapsed(e, now, h.skew))
}

// Looked is told of each call that the watch has made of the store, whether it worked or not.
func (h *Hub) Looked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked = time.Now()
}

// patience is for how much longer than a call may take a watch need not have looked again when a
// term has run out: it may pause for half a minute after calls that failed.
const patience = 45 * time.Second

// Stuck reports whether the watch has not looked at the record though its term ran out a while ago,
// which a watch does always: it does not go on any more. While nobody leads it need not look.
func (h *Hub) Stuck() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lapsedAt.IsZero() || h.entry.Vacant() || h.closed || h.looked.After(h.lapsedAt) {
		return false
	}
	return time.Since(h.lapsedAt) > patience+min(h.entry.TermLength, leaderelection.MaxTermLength)/4
}

// add remembers an event, and wakes who waits for one.
func (h *Hub) add(e state.Event) {
	h.remember(e)
	h.news.add(e)
}

// remember keeps the timeline.
func (h *Hub) remember(e state.Event) {
	var last *Leadership
	if n := len(h.leaderships); n > 0 {
		last = &h.leaderships[n-1]
	}
	end := func(how string) {
		if last != nil && last.To.IsZero() {
			last.To, last.End = e.Time, how
		}
	}
	switch e.Event {
	case state.Vacancy:
		end(state.Vacancy)
	case state.Lapse:
		end(state.Lapse)
	case state.Elected:
		if last != nil && last.Token == e.Token {
			last.To, last.End = time.Time{}, "" // it is back
			return
		}
		end("superseded")
		from := e.Time
		if last == nil && !e.Since.IsZero() && e.Since.Before(from) {
			from = e.Since
		}
		h.leaderships = append(h.leaderships, Leadership{Token: e.Token, LeaderID: e.LeaderID, From: from})
		if len(h.leaderships) > maxLeaderships {
			h.leaderships = h.leaderships[1:]
		}
	}
}

// Now is what is known, as of now.
func (h *Hub) Now() state.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.follow.Now(time.Now(), h.skew)
}

// Seen reports whether a candidate of that name has led since this process began, in
// one of the leaderships that are remembered.
func (h *Hub) Seen(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.leaderships, func(r Leadership) bool { return r.LeaderID == id })
}

// Leaderships are those seen, the newest last.
func (h *Hub) Leaderships() []Leadership {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Leadership{}, h.leaderships...)
}

// After returns the events after the one numbered last (those remembered), the
// number of the newest, and a channel that the next one closes.
func (h *Hub) After(last uint64) ([]Told[state.Event], uint64, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.news.after(last)
}

// Close stops the hub's timer.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.lapse != nil {
		h.lapse.Stop()
	}
}

// Told is an event with its number, for those who come back.
type Told[E any] struct {
	ID    uint64
	Event E
}

// news are the events of a hub, which locks them.
type news[E any] struct {
	most    int // are remembered
	events  []Told[E]
	last    uint64        // the newest one's number
	changed chan struct{} // closed by the next one
}

func newNews[E any](most int) news[E] { return news[E]{most: most, changed: make(chan struct{})} }

// add remembers events, and wakes who waits for one.
func (n *news[E]) add(events ...E) {
	for _, e := range events {
		n.last++
		n.events = append(n.events, Told[E]{n.last, e})
	}
	n.events = n.events[max(0, len(n.events)-n.most):]
	close(n.changed)
	n.changed = make(chan struct{})
}

// after are the events after the one numbered last (those remembered), the number of the
// newest, and what the next one closes.
func (n *news[E]) after(last uint64) (told []Told[E], newest uint64, changed <-chan struct{}) {
	for _, e := range n.events {
		if e.ID > last {
			told = append(told, e)
		}
	}
	return told, n.last, n.changed
}

// ShardsConfig is what a sidecar of a group of shards serves. What it has in common with
// that of an election is Config's: Secret, ReadOnly, Hosts, MaxWaiting, Fit and Ended.
type ShardsConfig struct {
	Config
	Group *ShardHub
	// Member is this process's, or returns nil for an observer, and while it has not
	// begun.
	Member func() *shard.Member
	// What operators may ask for.
	Move                  func(ctx context.Context, shard, member string) error
	Unpin, Drain, Undrain func(ctx context.Context, name string) error
}

// ShardHub keeps what is known of a group, and wakes those who wait for news. Its methods
// may be called by several goroutines at once.
type ShardHub struct {
	mu     sync.Mutex
	follow shards.Follower
	newest *shard.Assignment
	news   news[shards.Event]
}

// maxShardEvents is how many events are remembered.
const maxShardEvents = 4096

// NewShardHub returns a hub that knows of no assignment.
func NewShardHub() *ShardHub { return &ShardHub{news: newNews[shards.Event](maxShardEvents)} }

// News takes in an assignment. One that is not newer than what is known is ignored.
func (h *ShardHub) News(a *shard.Assignment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a == nil || h.newest != nil && a.Version() <= h.newest.Version() {
		return
	}
	h.newest = a
	h.news.add(h.follow.Changed(a, time.Now())...)
}

// now is the newest assignment, or nil, and what the next one closes.
func (h *ShardHub) now() (*shard.Assignment, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest, h.news.changed
}

// State is what is known.
func (h *ShardHub) State() shards.State {
	a, _ := h.now()
	return shards.Of(a, nil, time.Now())
}

func (h *ShardHub) after(last uint64) ([]Told[shards.Event], uint64, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.news.after(last)
}

// ShardsHandler is the sidecar's of a group.
func ShardsHandler(c ShardsConfig) http.Handler {
	s := &shardServer{server: newServer(c.Config), c: c}
	s.now = func() any { return s.summary() }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /shards", s.all)
	mux.HandleFunc("GET /shards/{name...}", s.one)
	mux.HandleFunc("GET /self", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.self()) })
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("/owner", s.owner)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.self()) })
	named := func(do func(context.Context, string) error, key string) http.Handler {
		return s.guarded(func(ctx context.Context, r *http.Request) error {
			if r.FormValue(key) == "" {
				return fmt.Errorf("%w: say which by %s=NAME", errNoID, key)
			}
			return do(ctx, r.FormValue(key))
		})
	}
	mux.Handle("POST /move", s.guarded(func(ctx context.Context, r *http.Request) error {
		name, to := r.FormValue("shard"), r.FormValue("to")
		if name == "" || to == "" {
			return fmt.Errorf("%w: say what and where to by shard=NAME and to=MEMBER", errNoID)
		}
		if !s.isMember(to) {
			return errNoMember
		}
		return c.Move(ctx, name, to)
	}))
	drain := func(ctx context.Context, id string) error {
		if !s.isMember(id) {
			return errNoMember
		}
		return c.Drain(ctx, id)
	}
	mux.Handle("POST /unpin", named(c.Unpin, "shard"))
	mux.Handle("POST /drain", named(drain, "member"))
	mux.Handle("POST /undrain", named(c.Undrain, "member"))
	mux.HandleFunc("GET /{$}", s.file("shards.html", "text/html; charset=utf-8"))
	mux.HandleFunc("GET /icon.svg", s.file("icon.svg", "image/svg+xml"))
	mux.HandleFunc("GET /page.css", s.file("page.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /shards.js", s.file("shards.js", "text/javascript; charset=utf-8"))
	return common(s.hosts(mux))
}

// errNoMember is the answer for a member that the group has not: to move a shard there, or
// to empty it, would do nothing.
var errNoMember = errors.New("the group has no member of that name")

type shardServer struct {
	*server
	c ShardsConfig
}

func (s *shardServer) isMember(id string) bool {
	a, _ := s.c.Group.now()
	if a == nil {
		return false
	}
	return slices.ContainsFunc(a.Members(), func(m shard.Owner) bool { return m.Member == id })
}

// summary is the state without each single shard.
func (s *shardServer) summary() shards.State {
	all := s.c.Group.State()
	all.Assigned = nil
	return all
}

// OwnedShard is what this process may act on, as JSON.
type OwnedShard struct {
	Shard  string  `json:"shard"`
	Token  uint64  `json:"token"`
	Left   float64 `json:"view_seconds_left"`
	Moving bool    `json:"moving,omitempty"` // it is to be let go: begin nothing new
}

// ShardSelf is what this process is doing.
type ShardSelf struct {
	ID      string       `json:"id"`
	Role    string       `json:"role"` // member or observer
	Seat    int          `json:"seat"` // -1: none
	Session uint64       `json:"session,omitempty"`
	Version uint64       `json:"version"` // of the newest assignment known
	Owned   []OwnedShard `json:"owned"`
}

func (s *shardServer) self() ShardSelf {
	self := ShardSelf{ID: s.ID, Role: "observer", Seat: -1, Owned: []OwnedShard{}}
	if s.ID != "" {
		self.Role = "member"
	}
	if a, _ := s.c.Group.now(); a != nil {
		self.Version = uint64(a.Version())
	}
	m := s.c.Member()
	if m == nil {
		return self
	}
	if id := m.Session(); id.Number != 0 {
		self.Seat, self.Session = id.Seat, uint64(id.Number)
	}
	for _, o := range m.Owned() {
		self.Owned = append(self.Owned, OwnedShard{o.Name(), uint64(o.ElectionNumber()), state.Seconds(time.Until(o.Get())), o.Context().Err() != nil})
	}
	return self
}

// owner says 200 only while this process owns a shard.
func (s *shardServer) owner(w http.ResponseWriter, _ *http.Request) {
	self, code := s.self(), http.StatusServiceUnavailable
	if len(self.Owned) > 0 {
		code = http.StatusOK
	}
	answer(w, code, self)
}

// until is the server's, with each assignment that is known.
func (s *shardServer) until(r *http.Request, wait time.Duration, is func(*shard.Assignment) bool) bool {
	return s.server.until(r, wait, func() (<-chan struct{}, bool) {
		a, changed := s.c.Group.now()
		return changed, a != nil && is(a)
	})
}

// all answers at once, or with after=VERSION when there is a later assignment, or when wait
// is over.
func (s *shardServer) all(w http.ResponseWriter, r *http.Request) {
	wait, after, done, ok := s.asks(w, r, "a number")
	if !ok {
		return
	}
	defer done()
	if s.until(r, wait, func(a *shard.Assignment) bool { return uint64(a.Version()) > after }) {
		answer(w, http.StatusOK, s.c.Group.State())
	}
}

// one answers at once, or with after=TOKEN when somebody owns the shard by a greater
// token, or when wait is over.
func (s *shardServer) one(w http.ResponseWriter, r *http.Request) {
	wait, after, done, ok := s.asks(w, r, "a number")
	if !ok {
		return
	}
	defer done()
	name := r.PathValue("name")
	if !s.until(r, wait, func(a *shard.Assignment) bool {
		o, _ := a.Owner(name)
		return o.Member != "" && uint64(o.Token) > after
	}) {
		return
	}
	a, _ := s.c.Group.now()
	if a == nil {
		answer(w, http.StatusServiceUnavailable, fault("no assignment of the group has been read yet"))
		return
	}
	o, there := a.Owner(name)
	if !there {
		answer(w, http.StatusNotFound, fault("there is no such shard"))
		return
	}
	answer(w, http.StatusOK, shards.OfOne(a, name, o))
}

// events are server-sent: the first is a summary.
func (s *shardServer) events(w http.ResponseWriter, r *http.Request) {
	stream(s.server, w, r, func() any { return s.summary() }, s.c.Group.after, func(e shards.Event) string {
		if e.Event == shards.Began {
			return "" // as the summary has it
		}
		return e.Event
	})
}
