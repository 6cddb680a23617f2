package lehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// Probes returns a handler with all probes of a candidate: /livez ([Live]), /readyz ([Ready]),
// /leader ([Leader]) and /standby ([Standby]). Use it for load balancers and orchestrators. It answers every method, such
// as the OPTIONS and HEAD of load balancers, and other paths with 404. It makes no calls and
// tells no names, so it needs no authentication. The options are Live's.
//
//	mux.Handle("/election/", http.StripPrefix("/election", lehttp.Probes(campaign, nil)))
func Probes(c Pinged, opts *LiveOptions) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/livez", Live(c, opts))
	mux.Handle("/readyz", Ready(c))
	mux.Handle("/leader", Leader(c))
	mux.Handle("/standby", Standby(c))
	return mux
}

// Ready returns a handler that answers 200 while this process takes requests: it leads, or stands by
// and passes them on ([RequireOptions].Otherwise). It answers 503 when this process gives up leadership,
// or its campaign has stopped. Use it for load balancers that may ask every process, and as a readiness
// probe. A server that [Serve] ends goes on until they have noticed.
func Ready(c leaderelection.Candidate) http.Handler {
	return probe(func(*http.Request) (bool, string) {
		switch c.Status() {
		case leaderelection.Leading, leaderelection.Following:
			return true, "ready"
		case leaderelection.Draining:
			return false, "giving up leadership"
		}
		return false, "the campaign has stopped"
	})
}

// Leader returns a handler that answers 200 while this process leads and has not begun to give that
// up, and otherwise 503. Use it for a load balancer's health check if traffic must reach only the
// leader. It makes no calls, and costs no more than reading the clock.
//
// Do not use it as a liveness probe: a standby is healthy, and must not be restarted. As the
// readiness probe of a Deployment it stalls rollouts: see the package's documentation.
func Leader(c leaderelection.Candidate) http.Handler {
	return probe(func(*http.Request) (bool, string) {
		if c.Status() == leaderelection.Leading && c.View().ValueInFuture() {
			return true, "leading"
		}
		return false, "not leading"
	})
}

// Standby returns a handler that answers 200 while this process stands by to lead. It answers 503
// if this process leads, is giving that up, or has stopped. Use it to keep work such as reports
// and backups away from the leader.
func Standby(c leaderelection.Candidate) http.Handler {
	return probe(func(*http.Request) (bool, string) {
		if c.Status() == leaderelection.Following {
			return true, "standing by"
		}
		return false, "not standing by"
	})
}

// Pinged is a Candidate whose loop can be asked whether it moves. A *leaderelection.Campaign
// is one.
type Pinged interface {
	leaderelection.Candidate
	Ping(ctx context.Context) error
}

// LiveOptions are the settings of [Live]. The zero value is right for most.
type LiveOptions struct {
	// Logger gets the reason if the campaign says that it is stuck. The reason may name the store,
	// so the client gets a fixed text. It is logged once, when the probe begins to fail. Nil means
	// slog.Default() from Warn on, as in Config.
	Logger *slog.Logger
}

// Live returns a handler for a liveness probe. It answers 503 if only a new process helps, and 200
// otherwise. A standby, an unhealthy candidate, and a candidate whose store does not answer get
// 200. The probe fails if
//
//   - the campaign's loop does not answer within 500 ms (Campaign.Ping): there is a deadlock, or the
//     machine is starved, so do not restart after a single failure;
//   - a leader's view has been over for longer than its term, and its work has not ended: its
//     OnElected does not respect its ctx, so this process can never lead again;
//   - LeaderChanged has not returned for four terms, or the store has refused every call for as
//     long (Campaign.Ping);
//   - the campaign has stopped, by itself or because its ctx has ended.
//
// Requests take turns, so many requests at once do not keep the campaign busy.
func Live(c Pinged, opts *LiveOptions) http.Handler {
	p := &liveness{campaign: c, o: route.Or(opts), turn: make(chan struct{}, 1)}
	p.o.Logger = warnings.Or(p.o.Logger)
	return probe(p.alive)
}

// pingWithin is how soon the campaign must answer: half of the time that Kubernetes gives a probe by default.
const pingWithin = 500 * time.Millisecond

var errSilent = fmt.Errorf("the campaign does not answer within %v", pingWithin)

// liveness is a Live.
type liveness struct {
	campaign Pinged
	o        LiveOptions
	turn     chan struct{} // has one while the campaign is asked
	told     atomic.Bool   // the Logger has why the campaign is stuck
}

func (p *liveness) alive(r *http.Request) (bool, string) {
	switch p.campaign.Status() {
	case leaderelection.Stopped:
		return false, "the campaign has stopped"
	case leaderelection.Leading, leaderelection.Draining:
		if late := p.late(); late > cmp.Or(p.campaign.Leader().TermLength, leaderelection.DefaultTermLength) {
			return false, fmt.Sprintf("leadership was over %v ago, and its work has not ended", late.Round(time.Millisecond))
		}
	}
	switch err := p.ping(r.Context()); {
	case err == nil:
		p.told.Store(false)
		return true, "alive"
	case errors.Is(err, errSilent):
		return false, errSilent.Error()
	case r.Context().Err() == nil && !p.told.Swap(true):
		p.o.Logger.Warn("leaderelection: the liveness probe fails", "err", err)
	}
	return false, "the campaign is stuck: the log says why"
}

// late returns how long the view has been over, or zero if it is not.
func (p *liveness) late() time.Duration {
	view := p.campaign.View()
	if view.ValueInFuture() || view.Get().IsZero() {
		return 0
	}
	return view.Clock().Now().Sub(view.Get()) // by the wall clock: Get has no other reading
}

// ping asks the campaign, which must answer in time.
func (p *liveness) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pingWithin, errSilent)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return errSilent
	}
	if ctx.Err() != nil {
		return errSilent
	}
	return p.campaign.Ping(ctx)
}

// probe answers 200 or 503, and says why in a few words.
func probe(ask func(*http.Request) (ok bool, why string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ok, why := ask(r)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintln(w, why)
	})
}
