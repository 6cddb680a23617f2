package lehttp

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Probes returns a handler for those who probe a candidate, at the paths that they
// expect: /livez ([Live]), /leader ([Ready]) and /standby ([Standby]). Other paths are 404;
// any method will do, as the OPTIONS and HEAD of load balancers. It asks nobody, and tells
// nobody's name: so it needs no authentication. The options are Live's.
//
//	mux.Handle("/election/", http.StripPrefix("/election", lehttp.Probes(campaign, nil)))
func Probes(l Leadership, options *LiveOptions) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/livez", Live(l, options))
	mux.Handle("/leader", Ready(l))
	mux.Handle("/standby", Standby(l))
	return mux
}

// Ready returns a handler for a load balancer's or an orchestrator's readiness
// probe, where traffic is to reach the leader alone: 200 while this process
// leads and has not begun to give that up, else 503. It asks nobody, and costs
// no more than reading the clock.
//
// It is no liveness probe: a standby is healthy, and must not be restarted. As a
// readiness probe it stalls rollouts with maxUnavailable: 0, since only one process
// is ever ready: see the package's documentation.
func Ready(l Leadership) http.Handler {
	status, _ := l.(withStatus)
	return probe(func(*http.Request) (bool, string) {
		if l.View().ValueInFuture() && (status == nil || status.Status() == leaderelection.Leading) {
			return true, "leading"
		}
		return false, "not leading"
	})
}

// Standby returns a handler that answers 200 while this process stands by to lead, and
// else 503: where it leads, is giving that up, or has stopped. For what is to be kept away
// from the leader, as reports and backups.
func Standby(l Leadership) http.Handler {
	status, _ := l.(withStatus)
	return probe(func(*http.Request) (bool, string) {
		follows := !l.View().ValueInFuture()
		if status != nil {
			follows = status.Status() == leaderelection.Following
		}
		if follows {
			return true, "standing by"
		}
		return false, "not standing by"
	})
}

// LiveOptions are for [Live]. The zero value is right for most.
type LiveOptions struct {
	// Grace is how long after its view has ended a leader may be one whose work has not
	// ended: OnElected or OnOusting has not returned. A process that takes longer than
	// that to leave off is restarted. Zero: a term, as the record has it.
	Grace time.Duration
	// Timeout is how soon the campaign must answer. Zero: 500 ms, half of the time that
	// Kubernetes gives a probe by default.
	Timeout time.Duration
}

// Live returns a handler for a liveness probe: 503 if only a new process helps, and 200
// otherwise, for leaders, standbys and the unhealthy alike, also if the store does not
// answer. It fails if
//
//   - the campaign's loop does not answer (Campaign.Ping): a deadlock, or a machine that is
//     starved, which is why one failure should not be enough;
//   - a leader has not renewed, its view has been over for longer than Grace, and it has
//     not been able to leave off: its OnElected does not heed its ctx, and so this process
//     can never lead again;
//   - the campaign has stopped, of itself or since its ctx has ended.
//
// It needs a *leaderelection.Campaign to know that. Of a Leadership that cannot be asked
// it says 200. Requests take turns, so many at once do not keep the campaign busy.
func Live(l Leadership, options *LiveOptions) http.Handler {
	p := &liveness{leads: l, turn: make(chan struct{}, 1)}
	if options != nil {
		p.o = *options
	}
	if p.o.Timeout == 0 {
		p.o.Timeout = 500 * time.Millisecond
	}
	p.status, _ = l.(withStatus)
	p.leader, _ = l.(withLeader)
	p.loop, _ = l.(withPing)
	return probe(p.alive)
}

// withPing is an optional part of a Leadership: the Campaign's Ping.
type withPing interface {
	Ping(ctx context.Context) error
}

// liveness is a Live.
type liveness struct {
	leads  Leadership
	status withStatus
	leader withLeader
	loop   withPing
	o      LiveOptions
	turn   chan struct{} // has one while the campaign is asked
}

func (p *liveness) alive(r *http.Request) (bool, string) {
	if p.status != nil {
		switch p.status.Status() {
		case leaderelection.Stopped:
			return false, "the campaign has stopped"
		case leaderelection.Leading, leaderelection.Draining:
			if late, grace := p.late(), p.grace(); late > grace {
				return false, fmt.Sprintf("leadership was over %v ago, and its work has not ended", late.Round(time.Millisecond))
			}
		}
	}
	if !p.answers(r.Context()) {
		return false, fmt.Sprintf("the campaign does not answer within %v", p.o.Timeout)
	}
	return true, "alive"
}

// late is for how long the view has been over; zero while it is not.
func (p *liveness) late() time.Duration {
	view := p.leads.View()
	if view.ValueInFuture() || view.Get().IsZero() {
		return 0
	}
	return view.Clock().Now().Sub(view.Get()) // by the wall clock: Get has no other reading
}

func (p *liveness) grace() time.Duration {
	switch {
	case p.o.Grace > 0:
		return p.o.Grace
	case p.leader != nil:
		if term := p.leader.Leader().TermLength; term > 0 {
			return term
		}
	}
	return leaderelection.DefaultTermLength
}

// answers reports whether the campaign's loop does in time.
func (p *liveness) answers(ctx context.Context) bool {
	if p.loop == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return false
	}
	return ctx.Err() == nil && p.loop.Ping(ctx) == nil
}

// probe answers 200 or 503, and a word on why.
func probe(ask func(*http.Request) (ok bool, why string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ok, why := ask(r)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintln(w, why)
	})
}
