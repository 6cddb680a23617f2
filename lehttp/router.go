package lehttp

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// Router knows who leads an election, for the handlers made of it. Its methods
// may be called by any number of goroutines at once.
//
// It goes by the newest record it has seen, also while the store does not
// answer, until that record's term has run out by its own clock, MaxClockSkew
// included. So a Router may send requests to a process that has just ceased to
// lead; that one refuses them, where it has RequireLeader.
type Router struct {
	table *route.Table
	done  <-chan struct{}
	last  atomic.Uint64 // the leadership that was complained of last
}

// Follow returns a Router that watches an election until ctx ends. It returns
// at once, and refuses only a WatchConfig that is wrong; while the store cannot
// be read, or refuses for good, it goes on trying, with pauses.
func Follow(ctx context.Context, w leaderelection.WatchConfig) (*Router, error) {
	f, err := route.Follow(ctx, w, nil)
	if err != nil {
		return nil, err
	}
	return &Router{table: f.Table, done: f.Done()}, nil
}

// NewRouter returns a Router that learns of records by News alone: for a
// candidate, which reads the store anyway.
//
//	router := lehttp.NewRouter(nil, time.Second)
//	config.Trace = &leaderelection.Trace{News: router.News}
//
// Clock and maxClockSkew are those of the candidate's Config; a nil clock is the
// system's.
func NewRouter(clock clocks.Clock, maxClockSkew time.Duration) *Router {
	done := make(chan struct{})
	close(done)
	return &Router{table: route.NewTable(clock, maxClockSkew), done: done}
}

// News tells the Router of a record. Older ones than it knows are ignored. It is
// fit for Trace.News.
func (r *Router) News(e leaderelection.RaceEntry) { r.table.News(e) }

// Leader returns the newest record known, and whether it names somebody who may
// lead at this moment. Its Token is nil.
func (r *Router) Leader() (leaderelection.RaceEntry, bool) {
	s := r.table.Load()
	return *s.Entry.Clone(), s.Led()
}

// Done is closed when a Router made by Follow has ended, after its ctx did; it
// is closed from the start for one made by NewRouter.
func (r *Router) Done() <-chan struct{} { return r.done }

// A refusal is why a request is not served.
type refusal struct {
	status int
	why    string        // as the client is told: it may be an outsider
	detail string        // as the log is told; empty: why
	retry  time.Duration // for Retry-After, where there may be a leader later
	final  bool          // no use waiting: only another leader can help
}

func (r *refusal) Error() string {
	if r.detail != "" {
		return "leaderelection: " + r.detail
	}
	return "leaderelection: " + r.why
}

// loopRefusal answers a request that has come back to where it was.
func loopRefusal(e *leaderelection.RaceEntry) *refusal {
	return &refusal{
		status: http.StatusLoopDetected, why: "the leader's address leads back here",
		detail: fmt.Sprintf("the leader's address %q leads back here: Config.HostPort must name the leader itself, not what routes to it", e.HostPort),
	}
}

// unled returns why there is no leader to go to, or nil where there is one. self
// is the LeaderID of this process, if it is a candidate.
func unled(s *route.State, self string) *refusal {
	no := func(why, format string, args ...any) *refusal {
		return &refusal{status: http.StatusServiceUnavailable, why: why, detail: fmt.Sprintf(format, args...), retry: s.UntilNext()}
	}
	switch {
	case !s.Known():
		return no("the leader is not known yet", "the election's record has not been read yet")
	case s.Entry.Vacant():
		return no("there is no leader", "there is no leader: election %d was given up", s.Entry.ElectionNumber)
	case !s.Led():
		return no("there is no leader", "there is no leader: the term of %q has run out", s.Entry.LeaderID)
	case isHere(s, self):
		return no("this process does not lead", "this process holds the record, but does not lead")
	}
	return nil
}

// isHere reports whether the leader on record is this process.
func isHere(s *route.State, self string) bool {
	return self != "" && s.Led() && s.Entry.LeaderID == self
}

// answer writes the refusal, in place of whatever header w has.
func (r *refusal) answer(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if r.status == http.StatusServiceUnavailable || r.retry > 0 {
		h.Set("Retry-After", seconds(r.retry))
	}
	w.WriteHeader(r.status)
	fmt.Fprintln(w, r.why)
}

// seconds is d for Retry-After: whole seconds, rounded up, and one at least, so
// that a client does not come back at once to what takes some moments.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}

// complain logs what is wrong with a leadership's record, once for each.
func (r *Router) complain(logger *slog.Logger, s *route.State, why string) {
	if logger == nil {
		return
	}
	if n := uint64(s.Entry.ElectionNumber); r.last.Swap(n) != n {
		logger.Warn("leaderelection: "+why, "leader", s.Entry.LeaderID, "election", n, "hostPort", s.Entry.HostPort)
	}
}
