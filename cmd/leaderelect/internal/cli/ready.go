package cli

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/health"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/notify"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
)

// When a supervisor is told that this process is ready.
const (
	whenStanding = "standing"
	whenLeading  = "leading"
)

// readiness is what a candidate tells its supervisor, and how.
type readiness struct {
	fd   int
	when string
	pass bool // NOTIFY_SOCKET is the command's
}

// flags declares them. Without a command there is nobody to pass the socket on to.
func (r *readiness) flags(a *app, c *cobra.Command, when string, command bool) {
	f := c.Flags()
	f.IntVar(&r.fd, "ready-fd", 0, "write a line to this file descriptor when ready, and close it, as s6 expects (3 or more)")
	f.StringVar(&r.when, "ready-when", when, "when this process is ready, for --ready-fd and for systemd's READY: standing (as a candidate) or leading")
	choices(c, "ready-when", whenStanding, whenLeading)
	if command {
		f.BoolVar(&r.pass, "pass-notify", false, "leave systemd's NOTIFY_SOCKET and WATCHDOG_USEC to the command, and do not use them (the unit needs NotifyAccess=all)")
	}
}

// open returns who tells the supervisor. What it goes by is kept from the command.
func (r *readiness) open(a *app, id string) (*supervisor, error) {
	if r.when != whenStanding && r.when != whenLeading {
		return nil, usage("--ready-when is %q, want standing or leading", r.when)
	}
	var line *os.File
	if r.fd != 0 {
		var err error
		if line, err = inherited(r.fd); err != nil {
			return nil, usage("--ready-fd %d: %v", r.fd, err)
		}
	}
	socket := os.Getenv(notify.Socket)
	if r.pass {
		socket = ""
		_ = os.Unsetenv(notify.WatchdogPID) // which is this process
	}
	n, err := notify.Open(socket, line, os.Getenv)
	if err != nil {
		a.logger().Warn("nothing is reported to systemd", "err", err)
	}
	if !r.pass {
		for _, name := range []string{notify.Socket, notify.WatchdogUsec, notify.WatchdogPID} {
			_ = os.Unsetenv(name)
		}
	}
	s := newSupervisor(n, id, r.when)
	s.line.Fit, s.ending = a.fit, a.ending
	return s, nil
}

func newSupervisor(n *notify.Notifier, id, when string) *supervisor {
	s := &supervisor{n: n, id: id, when: when}
	s.line.Told, s.line.Answered = n.Status, s.answered
	return s
}

// supervisor is told what a candidate does.
type supervisor struct {
	n        *notify.Notifier
	id, when string
	line     health.Line
	campaign atomic.Pointer[leaderelection.Campaign]
	observes bool                 // it is not a candidate
	says     bool                 // the candidate calls leads by itself
	ending   func() time.Duration // how long the end of this program may wait for the supervisor; nil: it need not
	overdue  bool                 // led by its own account at the last look, though its view was over
}

// start has the supervisor told until stop is called; ctx is the candidate's.
func (s *supervisor) start(ctx context.Context) (stop func()) {
	s.line.Phase("starting")
	unwatch := s.n.Watch(s.alive)
	ending := context.AfterFunc(ctx, s.n.Stopping)
	return func() {
		ending()
		unwatch()
		if s.ending != nil {
			s.n.Flush(s.ending())
		}
	}
}

// alive reports whether the candidate does its work: one that says for two looks that it
// leads, though its view is over, does not. A store that cannot be reached is not its fault.
func (s *supervisor) alive() bool {
	c := s.campaign.Load()
	return s.look(c != nil && c.Status() == leaderelection.Leading && !c.View().ValueInFuture())
}

func (s *supervisor) look(overdue bool) (alive bool) {
	alive = !overdue || !s.overdue
	s.overdue = overdue
	return alive
}

// begun is told of the campaign when it has begun.
func (s *supervisor) begun(c *leaderelection.Campaign) { s.campaign.Store(c) }

// idle is what this process does while it does not lead.
func (s *supervisor) idle() string {
	if s.observes {
		return "observing"
	}
	return "standing by"
}

// answered is told that the store has answered: a client may have been made long before it
// connects, and only from now on does this process do its work.
func (s *supervisor) answered() {
	if s.when == whenStanding {
		s.n.Ready()
	}
}

// leads reports that this candidate leads.
func (s *supervisor) leads() {
	if s.when == whenLeading {
		s.n.Ready()
	}
}

// traced is tr, with the supervisor told, too.
func (s *supervisor) traced(tr *leaderelection.Trace) *leaderelection.Trace {
	return leaderelection.JoinTraces(tr, s.line.Trace(), &leaderelection.Trace{StatusChanged: s.changed, News: s.news})
}

func (s *supervisor) changed(c leaderelection.StatusChange) {
	switch c.To {
	case leaderelection.Following:
		s.line.Phase(s.idle())
	case leaderelection.Leading:
		s.line.Phase(fmt.Sprintf("leading, token %d", c.Number))
		if !s.says {
			s.leads()
		}
	case leaderelection.Draining:
		s.line.Phase(fmt.Sprintf("giving up leadership, token %d", c.Number))
	}
}

func (s *supervisor) news(e leaderelection.RaceEntry) {
	switch {
	case e.LeaderID == s.id && !s.observes: // changed tells
	case e.Vacant():
		s.line.Phase(s.idle() + "; nobody leads")
	default:
		s.line.Phase(fmt.Sprintf("%s; %s leads, token %d", s.idle(), state.Name(e.LeaderID), e.ElectionNumber))
	}
}
