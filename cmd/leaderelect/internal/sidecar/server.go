package sidecar

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/health"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
	"github.com/c8e606e4/leaderelection/lehttp"
	"github.com/c8e606e4/leaderelection/leprom"
)

// Config is what a sidecar serves.
type Config struct {
	Hub *Hub
	// Campaign is the candidate's, or returns nil for an observer, and while it
	// has not begun.
	Campaign func() *leaderelection.Campaign
	ID       string // the candidate's; empty for an observer
	Skew     time.Duration
	Metrics  http.Handler
	// Health is how this process does. Optional.
	Health func() health.Account
	// StepDown and Transfer put a request on record.
	StepDown func(ctx context.Context, force bool) error
	Transfer func(ctx context.Context, id string) error
	// Secret returns what must come with each request for a hand-over. If it is nil, programs on
	// this machine may ask.
	Secret func() (string, error)
	// ReadOnly refuses all hand-overs.
	ReadOnly bool
	// Hosts are the names to answer to, apart from addresses and names that nobody
	// outside can give. "*" is any.
	Hosts []string
	// MaxWaiting is how many requests may wait for news at once. Zero: any number.
	MaxWaiting int
	// Fit takes out of an error what strangers must not read. Optional.
	Fit func(string) string
	// Logger gets why /livez fails. Nil: slog's default.
	Logger *slog.Logger
	// Ended is closed when the server goes down: what waits returns.
	Ended <-chan struct{}
}

//go:embed page
var page embed.FS

// maxWait is the longest a request may wait for news.
const maxWait = 5 * time.Minute

// Handler is the sidecar's.
func Handler(c Config) http.Handler {
	s := newServer(c)
	s.now = func() any { return s.Hub.Now() }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /election", s.election)
	mux.HandleFunc("GET /leaderships", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.Hub.Leaderships()) })
	mux.HandleFunc("GET /self", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.self()) })
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("/leader", s.leader)
	mux.HandleFunc("/livez", s.probe(func(c *leaderelection.Campaign) http.Handler {
		return lehttp.Live(c, &lehttp.LiveOptions{Logger: s.Logger})
	}, http.StatusOK))
	mux.HandleFunc("/standby", s.probe(func(c *leaderelection.Campaign) http.Handler { return lehttp.Standby(c) }, http.StatusServiceUnavailable))
	mux.Handle("GET /metrics", c.Metrics)
	mux.Handle("POST /stepdown", s.guarded(func(ctx context.Context, r *http.Request) error {
		return c.StepDown(ctx, r.FormValue("force") == "true")
	}))
	mux.Handle("POST /transfer", s.guarded(func(ctx context.Context, r *http.Request) error {
		id := r.FormValue("to")
		if id == "" || id == leaderelection.AnySuccessor {
			return errNoID
		}
		if id != c.ID && !c.Hub.Seen(id) && r.FormValue("force") != "true" {
			return errUnknown
		}
		return c.Transfer(ctx, id)
	}))
	mux.HandleFunc("GET /{$}", s.file("index.html", "text/html; charset=utf-8"))
	mux.HandleFunc("GET /icon.svg", s.file("icon.svg", "image/svg+xml"))
	mux.HandleFunc("GET /page.css", s.file("page.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /page.js", s.file("page.js", "text/javascript; charset=utf-8"))
	return common(s.hosts(mux))
}

func newServer(c Config) *server {
	s := &server{Config: c}
	if c.MaxWaiting > 0 {
		s.waiting = newPlaces(c.MaxWaiting)
	}
	return s
}

type server struct {
	Config
	now func() any // the answer to a request for something

	mu      sync.Mutex
	waiting *places // for requests that wait for news; nil: no limit
}

// errUnknown is the answer for a candidate of whom nobody has heard. If there is none,
// the leader's release would leave nobody leading for a term.
var errUnknown = errors.New("this sidecar has not seen a candidate of that name lead: if one is running, add force=true")

var errNoID = errors.New("name the candidate: to=ID; for anybody there is POST /stepdown")

// place takes a place for a request that is not answered at once, if there is one. If so, nobody else gets its
// connection until done is called.
func (s *server) place(r *http.Request) (done func(), ok bool) {
	if s.waiting == nil {
		return keep(r.Context()), true
	}
	from := asker(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiting.room(from) {
		return nil, false
	}
	s.waiting.take(from, +1)
	loosen := keep(r.Context())
	return func() {
		loosen()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting.take(from, -1)
	}, true
}

// mayWait is place for a request that waits for news. Without a place it says so.
func (s *server) mayWait(w http.ResponseWriter, r *http.Request) (done func(), ok bool) {
	if done, ok = s.place(r); !ok {
		w.Header().Set("Retry-After", "5")
		answer(w, http.StatusServiceUnavailable, fault("too many wait for news already"))
	}
	return done, ok
}

func (s *server) file(name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		text, err := page.ReadFile("page/" + name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write(text)
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // it may have waited for news
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// Self is what this process is doing.
type Self struct {
	ID      string  `json:"id"`
	Role    string  `json:"role"`   // candidate or observer
	Status  string  `json:"status"` // as in leaderelection.Status
	Leading bool    `json:"leading"`
	Left    float64 `json:"view_seconds_left"`
	Token   uint64  `json:"token,omitempty"` // while leading
	Skew    float64 `json:"skew_seconds"`
	// Health is what it does in words, and when the store last answered or failed.
	Health *health.Account `json:"health,omitempty"`
}

func (s *server) self() Self {
	self := Self{ID: s.ID, Role: "observer", Status: "observing", Skew: s.Skew.Seconds()}
	if s.ID != "" {
		self.Role, self.Status = "candidate", "starting"
	}
	if s.Health != nil {
		account := s.Health()
		self.Health = &account
	}
	c := s.Campaign()
	if c == nil {
		return self
	}
	view, status := c.View(), c.Status()
	self.Status = status.String()
	if self.Leading = view.ValueInFuture() && status == leaderelection.Leading; self.Leading {
		self.Token = uint64(view.ElectionNumber())
		self.Left = state.Seconds(time.Until(view.Get()))
	}
	return self
}

// election answers at once, or with after=TOKEN when a leadership after that one has
// begun, or when wait is over.
func (s *server) election(w http.ResponseWriter, r *http.Request) {
	wait, after, done, ok := s.asks(w, r, "a fencing token")
	if !ok {
		return
	}
	defer done()
	var now state.State
	if s.until(r, wait, func() (<-chan struct{}, bool) {
		_, _, changed := s.Hub.After(0)
		now = s.Hub.Now()
		return changed, now.State == state.Led && now.Token > after
	}) {
		answer(w, http.StatusOK, now)
	}
}

// asks reads wait and after of a request, where after is such a number, and whether the request
// may wait. Call done in the end.
func (s *server) asks(w http.ResponseWriter, r *http.Request, number string) (wait time.Duration, after uint64, done func(), ok bool) {
	q := r.URL.Query()
	after, err := strconv.ParseUint(cmp.Or(q.Get("after"), "0"), 10, 64)
	if err != nil {
		answer(w, http.StatusBadRequest, fault("after must be "+number))
		return 0, 0, nil, false
	}
	if wait, err = duration(q.Get("wait")); err != nil {
		answer(w, http.StatusBadRequest, fault(err.Error()))
		return 0, 0, nil, false
	}
	done, ok = func() {}, true
	if wait > 0 {
		done, ok = s.mayWait(w, r)
	}
	return min(wait, maxWait), after, done, ok
}

// until calls is at once and with each change, until it reports that what is known will do, or
// the time is over: whether the client is there still.
func (s *server) until(r *http.Request, wait time.Duration, is func() (changed <-chan struct{}, enough bool)) bool {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		changed, enough := is()
		if enough || wait == 0 {
			return true
		}
		select {
		case <-changed:
		case <-limit.C:
			wait = 0
		case <-s.Ended:
			wait = 0
		case <-r.Context().Done():
			return false
		}
	}
}

// duration is a span of time with its unit, as a setting is; empty is none.
func duration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("wait is %q, want a span of time with its unit, such as 500ms, 30s or 2m", s)
	}
	return d, nil
}

type failure struct {
	Error string `json:"error"`
}

func fault(s string) failure { return failure{s} }

// events are server-sent.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	stream(s, w, r, func() any { return s.Hub.Now() }, s.Hub.After, func(e state.Event) string { return e.Event })
}

// stream sends events until the client is gone, or the server goes down: first the state
// and what is remembered after Last-Event-ID, then each event. After is as Hub's, and an event
// without a kind is not sent.
func stream[E any](s *server, w http.ResponseWriter, r *http.Request, state func() any, after func(last uint64) ([]Told[E], uint64, <-chan struct{}), kindOf func(E) string) {
	done, ok := s.mayWait(w, r)
	if !ok {
		return
	}
	defer done()
	out := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	_, last, _ := after(0)
	if id, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil && id <= last {
		last = id
	}
	if !send(w, out, last, "state", state()) {
		return
	}
	alive := time.NewTicker(15 * time.Second)
	defer alive.Stop()
	for {
		news, _, changed := after(last)
		for _, e := range news {
			last = e.ID
			if kind := kindOf(e.Event); kind != "" && !send(w, out, e.ID, kind, e.Event) {
				return
			}
		}
		select {
		case <-changed:
		case <-alive.C:
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
			_, err := fmt.Fprint(w, ": still here\n\n")
			if err != nil || out.Flush() != nil {
				return
			}
		case <-s.Ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func send(w http.ResponseWriter, out *http.ResponseController, id uint64, event string, v any) bool {
	data, err := json.Marshal(v)
	if err != nil {
		return false
	}
	_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err = fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", id, event, data)
	return err == nil && out.Flush() == nil
}

// leader says 200 only while this process leads.
func (s *server) leader(w http.ResponseWriter, _ *http.Request) {
	self := s.self()
	code := http.StatusServiceUnavailable
	if self.Leading {
		code = http.StatusOK
	}
	answer(w, code, self)
}

// probe is what makes says of the campaign; and without one, code: that there is none is
// no reason to restart an observer.
func (s *server) probe(makes func(*leaderelection.Campaign) http.Handler, code int) http.HandlerFunc {
	var made atomic.Pointer[http.Handler]
	return func(w http.ResponseWriter, r *http.Request) {
		if made.Load() == nil {
			c := s.Campaign()
			if c == nil {
				if s.Hub.Stuck() {
					answer(w, http.StatusServiceUnavailable, fault("the watch is stuck: the leader's term is long over, and it has not looked"))
					return
				}
				answer(w, code, s.self())
				return
			}
			h := makes(c)
			made.CompareAndSwap(nil, &h)
		}
		(*made.Load()).ServeHTTP(w, r)
	}
}

// Metrics are a sidecar's, for Prometheus: the election's, and the process's.
type Metrics struct {
	*leprom.Metrics
	registry *prometheus.Registry
}

// NewMetrics returns metrics that know of no election yet.
func NewMetrics() *Metrics {
	m := &Metrics{Metrics: leprom.New(nil), registry: prometheus.NewRegistry()}
	m.registry.MustRegister(m.Metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// ElectionName is what an election is called in the metrics, if nobody has said: the
// store's URL without whatever may differ between its candidates or be secret. That
// leaves the parameters that name an election.
func ElectionName(raw string) string {
	u, err := url.Parse(redact.URL(raw))
	if err != nil {
		return "election"
	}
	u.User, u.Fragment = nil, ""
	named := url.Values{}
	for _, k := range []string{"key", "election"} {
		if v := u.Query().Get(k); v != "" {
			named.Set(k, v)
		}
	}
	u.RawQuery = named.Encode()
	return u.String()
}
