package cli

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
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
	f.IntVar(&r.fd, "ready-fd", 0, "write a line to this file descriptor when ready, and close it, as s6 wants it (3 or more)")
	f.StringVar(&r.when, "ready-when", when, "when that is, also for systemd's READY: standing (as a candidate) or leading")
	a.choices(c, "ready-when", whenStanding, whenLeading)
	if command {
		f.BoolVar(&r.pass, "pass-notify", false, "leave systemd's NOTIFY_SOCKET and WATCHDOG_USEC to the command (with NotifyAccess=all), and do not use them")
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
		a.logger().Warn("the supervisor cannot be told how this process is", "err", err)
	}
	if !r.pass {
		for _, name := range []string{notify.Socket, notify.WatchdogUsec, notify.WatchdogPID} {
			_ = os.Unsetenv(name)
		}
	}
	return &supervisor{n: n, id: id, when: r.when}, nil
}

// supervisor is told what a candidate does.
type supervisor struct {
	n        *notify.Notifier
	id, when string
	campaign atomic.Pointer[leaderelection.Campaign]
	says     bool // the candidate calls leads by itself
	overdue  bool // led by its own account at the last look, though its view was over
}

// start has the supervisor told until stop is called; ctx is the candidate's.
func (s *supervisor) start(ctx context.Context) (stop func()) {
	s.n.Status("opening the store")
	unwatch := s.n.Watch(s.alive)
	ending := context.AfterFunc(ctx, s.n.Stopping)
	return func() {
		ending()
		unwatch()
	}
}

// alive reports whether the candidate does its work: one that says for two looks that it
// leads, though its view is over, does not. A store that cannot be reached is no fault of it.
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
func (s *supervisor) begun(c *leaderelection.Campaign) {
	s.campaign.Store(c)
	if s.when == whenStanding {
		s.n.Ready()
	}
}

// leads is told that this candidate leads, and whoever should know does.
func (s *supervisor) leads() {
	if s.when == whenLeading {
		s.n.Ready()
	}
}

// trace has the supervisor told what tr is.
func (s *supervisor) trace(tr *leaderelection.Trace) {
	status, news := tr.StatusChanged, tr.News
	tr.StatusChanged = func(c leaderelection.StatusChange) {
		if status != nil {
			status(c)
		}
		s.changed(c)
	}
	tr.News = func(e leaderelection.RaceEntry) {
		if news != nil {
			news(e)
		}
		s.news(&e)
	}
}

func (s *supervisor) changed(c leaderelection.StatusChange) {
	switch c.To {
	case leaderelection.Following:
		s.n.Status("standing by")
	case leaderelection.Leading:
		s.n.Status(fmt.Sprintf("leading, election %d", c.Number))
		if !s.says {
			s.leads()
		}
	case leaderelection.Draining:
		s.n.Status(fmt.Sprintf("giving up election %d", c.Number))
	}
}

func (s *supervisor) news(e *leaderelection.RaceEntry) {
	switch {
	case e.LeaderID == s.id: // changed tells
	case e.Vacant():
		s.n.Status("standing by; nobody leads")
	default:
		s.n.Status(fmt.Sprintf("standing by; %s leads, election %d", state.Name(e.LeaderID), e.ElectionNumber))
	}
}
