package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/health"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/notify"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// flushPatience is how long the end of this program waits for what it has said to be taken, by the
// log's reader and by a supervisor together.
const flushPatience = 500 * time.Millisecond

// ending is how long that may still take. The time begins with the first call.
func (a *app) ending() time.Duration {
	if a.endBy.IsZero() {
		if a.patience == 0 {
			a.patience = flushPatience
		}
		a.endBy = time.Now().Add(a.patience)
	}
	return time.Until(a.endBy)
}

// log is the one way to standard error of all that is said while this program works: nothing waits
// for its reader.
func (a *app) log() *outbox.Log {
	a.logs.Do(func() {
		a.journalled = journalled(a.errOut)
		a.lines = &outbox.Log{Out: a.errOut, Lost: func(lines int) []byte {
			var line bytes.Buffer
			slog.New(a.handler(&line)).Warn("lines of this log are missing here: nobody took them", "lines", lines)
			return line.Bytes()
		}}
	})
	return a.lines
}

// logger writes to the log, in the format and from the level asked for.
func (a *app) logger() *slog.Logger { return slog.New(a.handler(a.log())) }

// handler is the log's, for what is written to out.
func (a *app) handler(out io.Writer) slog.Handler {
	var level slog.Level
	_ = level.UnmarshalText([]byte(a.common.logLevel)) // checked by settle
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: a.attr}
	handler := func(out io.Writer) slog.Handler {
		if a.common.logFormat == "json" {
			return slog.NewJSONHandler(out, o)
		}
		return slog.NewTextHandler(out, o)
	}
	if a.journalled {
		return journal(out, handler)
	}
	return handler(out)
}

// journal has each line of a log begin with its priority, as systemd's journal takes it from what
// a unit writes to its standard error (sd-daemon(3)). It makes the handler by what it is given to
// write to.
func journal(out io.Writer, handler func(io.Writer) slog.Handler) slog.Handler {
	w := &prioritised{out: out}
	return journalHandler{handler(w), w}
}

// The priorities of syslog(3), as lines begin with them.
const (
	priorityError   = "<3>"
	priorityWarning = "<4>"
	priorityInfo    = "<6>"
	priorityDebug   = "<7>"
)

func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return priorityError
	case level >= slog.LevelWarn:
		return priorityWarning
	case level >= slog.LevelInfo:
		return priorityInfo
	}
	return priorityDebug
}

// prioritised puts prefix before each line that a handler writes, which it does at once.
type prioritised struct {
	out    io.Writer
	mu     sync.Mutex
	prefix string
}

func (p *prioritised) Write(line []byte) (int, error) {
	if _, err := p.out.Write(append([]byte(p.prefix), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

type journalHandler struct {
	slog.Handler
	w *prioritised
}

func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.prefix = priority(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journalHandler{h.Handler.WithAttrs(attrs), h.w}
}

func (h journalHandler) WithGroup(name string) slog.Handler {
	return journalHandler{h.Handler.WithGroup(name), h.w}
}

// keepSecret notes the URLs among the arguments up to "--", and in the environment:
// what is said from now on shows none of their secrets.
func (a *app) keepSecret(args []string) {
	for _, arg := range append([]string{os.Getenv(envPrefix + "STORE")}, args...) {
		if arg == "--" {
			return
		}
		if name, value, found := strings.Cut(arg, "="); found && strings.HasPrefix(name, "-") {
			arg = value
		}
		if seemsURL(arg) {
			a.urls = append(a.urls, arg)
		}
	}
}

// warnOfReaders warns of a file with a secret that every user of this machine may read.
func (a *app) warnOfReaders(flag, path string) {
	info, err := os.Stat(path)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 { // Windows has no such bit
		a.logger().Warn("every user of this machine may read this file, which has a secret: chmod o-r it", "flag", flag, "file", path)
	}
}

// seemsURL reports whether arg is a URL, or looks as if its writer forgot the scheme.
func seemsURL(arg string) bool {
	user, _, at := strings.Cut(arg, "@")
	return strings.Contains(arg, "://") || at && strings.Contains(user, ":")
}

// fit is s as it may be printed: without secrets, without what a terminal would
// take for commands, and with a URL's parameters alone for what Go programs set otherwise.
func (a *app) fit(s string) string {
	return state.Printable(atTheCommandLine(redact.Text(s, a.urls...)))
}

// Advice of a store names a Go program's option and the URL's parameter, in one of two forms:
// "set Options.Create (create=true in an address)" and "wait_replicas=2 (Options.WaitReplicas)".
// They are compiled when there is something to say.
var (
	optionFirst = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?:let )?(?:\w+\.)?(?:Options|TLSConfig)\.\w+(?: do so)? \((\w+=\w+|\w+)(?: in an address| in a URL)?\)`)
	})
	optionAfter = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?: in a URL, | \()(?:\w+\.)?(?:Options|TLSConfig)\.\w+\)`)
	})
)

// atTheCommandLine is advice without the names of a Go program's options.
func atTheCommandLine(s string) string {
	s = optionFirst().ReplaceAllString(s, "$1 in the URL")
	return optionAfter().ReplaceAllStringFunc(s, func(m string) string {
		if strings.HasPrefix(m, " in a URL") {
			return " in the URL)"
		}
		return ""
	})
}

// complain prints an error.
func (a *app) complain(format string, args ...any) {
	out := a.log()
	prefix := ""
	if a.journalled {
		prefix = priorityError
	}
	fmt.Fprintf(out, "%sleaderelect: %s\n", prefix, a.fit(fmt.Sprintf(format, args...)))
}

// withoutSchema is an error without the statement that makes a table, which its advice ends with: that is
// printed once, when this program ends by the error, and not in each line of the log before.
func withoutSchema(s string) string {
	before, statement, found := strings.Cut(s, ":\nCREATE ")
	if !found {
		return s
	}
	_, after, _ := strings.Cut(statement, "\n)")
	_, after, _ = strings.Cut(after, "\n") // what follows the parenthesis
	if after = strings.TrimSpace(after); after != "" {
		before += "\n" + after
	}
	return before
}

// attr is at as it may be logged. JSON has a span of time in seconds, as that of all commands. The handlers escape what is not text.
func (a *app) attr(_ []string, at slog.Attr) slog.Attr {
	var s string
	if d := at.Value; d.Kind() == slog.KindDuration && a.common.logFormat == "json" {
		return slog.Float64(at.Key, d.Duration().Seconds())
	}
	switch v := at.Value.Any().(type) {
	case string:
		s = v
	case error:
		s = v.Error()
	case fmt.Stringer:
		s = v.String()
	default:
		return at
	}
	if hidden := withoutSchema(atTheCommandLine(redact.Text(s, a.urls...))); hidden != s {
		return slog.String(at.Key, hidden)
	}
	return at
}

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
