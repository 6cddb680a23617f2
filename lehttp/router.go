package lehttp

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// Router knows the leader of an election, for the handlers made from it: [Router.Proxy] and
// [Router.Redirect]. Make one by [Follow]. Its methods may be called by any number of goroutines at
// once.
//
// A Router uses the newest record that it has seen, even while the store does not answer, until
// that record's term plus MaxClockSkew has run out by its own clock. So it may send requests to a
// process that has just ceased to lead. If that process has RequireLeader, it refuses them.
type Router struct {
	table *route.Table
	end   context.CancelFunc
	done  <-chan struct{}
}

// Follow returns a Router that watches an election until Close. Use it in any process. In a candidate
// it must outlive the campaign, so that requests that come while the process ends still find the next
// leader: close it when the server has ended (see [Serve]).
//
// Follow returns at once, and fails only if the WatchConfig is wrong. While the store cannot be read,
// or refuses for good, the Router goes on trying, with pauses.
func Follow(w leaderelection.WatchConfig) (*Router, error) {
	ctx, cancel := context.WithCancel(context.Background())
	f, err := route.Follow(ctx, w, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	return &Router{table: f.Table, end: cancel, done: f.Done()}, nil
}

// Close stops watching, and returns when that has ended. The Router's handlers then use the last record
// until its term has run out.
func (r *Router) Close() {
	r.end()
	<-r.done
}

// Leader returns the newest record known, and whether it names a leader that may lead now. Use it
// to show the leader, or to route by other means. The record's Token is nil.
func (r *Router) Leader() (leaderelection.RaceEntry, bool) {
	s := r.table.Load()
	return *s.Entry.Clone(), s.Led()
}

// A refusal says why a request is not served.
type refusal struct {
	status int
	why    string        // for the client, which may be an outsider
	detail string        // for the log; empty: why
	retry  time.Duration // for Retry-After, if there may be a leader later
	final  bool          // waiting is useless: only another leader can help

	untouched bool // nobody has worked on the request: it may be sent elsewhere
}

func (r *refusal) Error() string {
	if r.detail != "" {
		return "leaderelection: " + r.detail
	}
	return "leaderelection: " + r.why
}

// loopRefusal answers a request that has come back to this process.
func loopRefusal(e *leaderelection.RaceEntry) *refusal {
	return &refusal{
		status: http.StatusLoopDetected, why: "the leader's address leads back here",
		detail: fmt.Sprintf("the leader's address %q leads back here: Config.HostPort must name the leader itself, not what routes to it", e.HostPort),
	}
}

// unled returns why there is no leader to go to, or nil if there is one. self is the LeaderID of
// this process, if it is a candidate.
func unled(s *route.State, self string) *refusal {
	no := func(why, format string, args ...any) *refusal {
		return &refusal{status: http.StatusServiceUnavailable, why: why, detail: fmt.Sprintf(format, args...), retry: s.UntilNext(), untouched: true}
	}
	switch {
	case s.Removed():
		return noSuchShard
	case !s.Known():
		return no("the leader is not known yet", "the election's record has not been read yet")
	case s.Entry.Vacant():
		return no("there is no leader", "there is no leader: the leadership with token %d was given up", s.Entry.ElectionNumber)
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

// answer writes the refusal, and its headers over those of w.
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

// seconds returns d for Retry-After: whole seconds, rounded up, and at least one. So a client does
// not come back at once while a leader takes some moments.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}

// complain logs what is wrong with a leadership's record, once for each leadership.
func complain(logger *slog.Logger, s *route.State, why string) {
	if s.First() {
		logger.Warn("leaderelection: "+why, "leader", s.Entry.LeaderID, "token", uint64(s.Entry.ElectionNumber), "hostPort", s.Entry.HostPort)
	}
}
