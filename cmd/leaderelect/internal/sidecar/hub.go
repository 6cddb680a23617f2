// Package sidecar tells of an election over HTTP: as JSON, as events, as metrics,
// and on a page for people.
package sidecar

import (
	"slices"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
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
