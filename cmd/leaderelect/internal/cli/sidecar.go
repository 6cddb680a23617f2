package cli

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/podlabel"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/sidecar"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

type sidecarFlags struct {
	runFlags
	served
	electionName string
	labelPods    string
	observe      bool
}

// served are the flags of what serves HTTP.
type served struct {
	listen, tokenFile string
	readOnly          bool
	allowHost         []string
	maxConnections    int
}

func (s *served) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:4040", "where to serve HTTP; port 0 takes a free one")
	f.StringVar(&s.tokenFile, "token-file", "", "a file with the token without which nobody may ask for anything by POST, not even from this machine")
	f.BoolVar(&s.readOnly, "read-only", false, "answer no POST")
	f.StringSliceVar(&s.allowHost, "allow-host", nil, "a further name to be asked by, as in a request's Host; may be repeated; * is any")
	f.IntVar(&s.maxConnections, "max-connections", 0, "how many connections to have open at once (default a quarter of the files this process may open, 256 at most)")
}

// check returns the token, or what is wrong.
func (s *served) check() (token string, err error) {
	switch {
	case s.readOnly && s.tokenFile != "":
		return "", usage("--read-only answers no POST: there is nothing for the token of --token-file to allow")
	case s.maxConnections < 0 || s.maxConnections == 1:
		return "", usage("--max-connections is %d, want 2 at least", s.maxConnections)
	}
	return readToken(s.tokenFile)
}

// serve serves HTTP by what handle makes of the flags until the function that it returns is
// called, which closes stopped.
func (s *served) serve(l net.Listener, log *slog.Logger, stopped chan struct{}, handle func(sidecar.Config) http.Handler) (stop func()) {
	most := s.maxConnections
	if most == 0 {
		most = max(2, min(256, openFiles()/4))
	}
	limited := sidecar.Limit(l, most)
	c := sidecar.Config{ReadOnly: s.readOnly, MaxWaiting: most - most/4, Ended: stopped}
	for _, host := range s.allowHost {
		c.Hosts = append(c.Hosts, strings.ToLower(host))
	}
	server := sidecar.Server(handle(c), limited, slogErrors(log))
	log.Info("serving", "url", "http://"+l.Addr().String())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP is not served any more", "err", err)
		}
	}()
	return func() {
		close(stopped)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-done
	}
}

func (a *app) sidecarCommand() *cobra.Command {
	var f sidecarFlags
	c := &cobra.Command{
		Use:   "sidecar [URL] [-- COMMAND [ARGUMENT...]]",
		Short: "Be a candidate, or an observer, and serve what is known over HTTP",
		Long: `Campaign in the election (with --observe only follow it), and serve over HTTP:

    GET  /leader      who leads, as JSON; with ?wait=30s&after=TOKEN not before a leadership
                      after that election number has begun, or the time is over
    GET  /events      server-sent events: state (once), elected, vacancy, lapse, extension
    GET  /readyz      200 only while this process leads, by its view
    GET  /standby     200 only while it stands by to lead
    GET  /livez       200 unless only a new process helps: the campaign, or the watch, is stuck
    GET  /healthz     200 while this process does its work
    GET  /metrics     for Prometheus
    GET  /leaderships      the leaderships seen; /self: what this process is doing
    POST /stepdown    ask the leader to step down
    POST /transfer?to=ID  ask it to hand over; with &force=true also to a candidate that
                      this process has not seen lead
    GET  /            a page for people

The POSTs are answered only for this machine; with --token-file only for those who give
its token as "Authorization: Bearer TOKEN", from wherever; with --read-only for nobody.
By which names it may be asked (the Host of a request) --allow-host says: any
address, names without a dot, .localhost, .svc and .svc.cluster.local always may.
Connections are limited (--max-connections), so that whoever opens them takes no file
descriptors that the lease needs: one too many takes the place of one that is idle.

In a pod of Kubernetes, --label-pods app=web has the label leaderelection/leader follow the
leader: it gives it to its own pod, whose name --id must be, and takes it from all others
that app=web selects. A Service that selects by it, too, has the leader alone.

With a COMMAND it is run while leading, as by leaderelect run.`,
		Example: `  leaderelect sidecar --listen :4040 s3://bucket/app
  curl 'http://127.0.0.1:4040/leader?wait=30s&after=7'`,
		Args: commandAfterDash(false),
		RunE: func(c *cobra.Command, args []string) error { return a.sidecar(c.Context(), &f, c, args) },
	}
	f.runFlags.flags(a, c)
	f.served.flags(c)
	c.Flags().BoolVar(&f.observe, "observe", false, "only follow the election")
	c.Flags().StringVar(&f.electionName, "election-name", "", "what the election is called in the metrics, alike at all candidates (default the store's URL, without credentials)")
	c.Flags().StringVar(&f.labelPods, "label-pods", "", "in Kubernetes: the selector of the election's pods, such as app=web, of which the leader's gets the label "+podlabel.Label)
	return c
}

func (a *app) sidecar(ctx context.Context, f *sidecarFlags, c *cobra.Command, args []string) error {
	before, command := splitDash(c, args)
	url, _, err := a.url(before)
	if err != nil {
		return err
	}
	times, err := f.runFlags.check(&a.common)
	switch {
	case err != nil && len(command) > 0:
		return err
	case f.observe && f.readiness.when == whenLeading:
		return usage("an observer never leads: --observe and --ready-when leading do not go together")
	case f.observe && len(command) > 0:
		return usage("an observer never leads: --observe and a COMMAND do not go together")
	case f.observe && f.labelPods != "":
		return usage("an observer never leads: --observe and --label-pods do not go together")
	}
	token, err := f.served.check()
	if err != nil {
		return err
	}
	cfg, err := a.candidate()
	if err != nil {
		return err
	}
	a.begun(exitError)
	tell, err := f.readiness.open(a, cfg.LeaderID)
	if err != nil {
		return err
	}
	s := &sidecarRun{a: a, f: f, cfg: cfg, tell: tell, hub: sidecar.NewHub(a.common.skew), token: token, stopped: make(chan struct{})}
	defer s.hub.Close()
	if len(command) > 0 {
		if _, err := proc.Find(command[0], f.setuid); err != nil {
			return &exit{notStarted(err), err}
		}
		s.job = newJob(a, &f.runFlags, times, &s.cfg, url, command)
		if s.job.flaw == nil {
			s.job.runner.Prepare()
			defer s.job.runner.Close()
		}
	}
	if f.labelPods != "" {
		pods, err := podlabel.Open(f.labelPods)
		if err != nil {
			return fmt.Errorf("--label-pods: %w", err)
		}
		s.pods = pods
	}
	return s.run(ctx, url)
}

func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", usage("--token-file: %v", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < 16 {
		return "", usage("--token-file: %s has a token of %d characters, want 16 at least", path, len(token))
	}
	return token, nil
}

// sidecarRun is a running sidecar.
type sidecarRun struct {
	a        *app
	f        *sidecarFlags
	cfg      leaderelection.Config
	tell     *supervisor
	job      *job          // nil: no command
	pods     podlabel.Pods // nil: none is labelled
	hub      *sidecar.Hub
	token    string
	decider  atomic.Pointer[leaderelection.RaceDecider]
	campaign atomic.Pointer[leaderelection.Campaign]
	stopped  chan struct{}
}

func (s *sidecarRun) run(ctx context.Context, url string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var r commands
	if s.job != nil {
		r = s.job.runner
	}
	defer s.a.signals(cancel, r)()
	listener, err := net.Listen("tcp", s.f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	metrics := sidecar.NewMetrics()
	watch, err := s.measure(metrics, url)
	if err != nil {
		return err
	}
	if !s.f.observe {
		s.tell.trace(s.cfg.Trace)
	}
	defer s.tell.start(ctx)()
	defer s.serve(listener, metrics)()
	d, err := s.a.openStore(ctx, url)
	if err != nil {
		return s.outcome(err)
	}
	defer store.Close(d)
	s.decider.Store(&d)
	if s.f.observe {
		s.tell.n.Ready()
		s.tell.n.Status("observing")
		watch.Decider = d
		return s.outcome(watch.Watch(ctx, func(context.Context, leaderelection.RaceEntry) {}))
	}
	return s.outcome(s.lead(ctx, cancel, d))
}

// measure lets hub and metrics know what the candidate does, or the observer that it
// returns.
func (s *sidecarRun) measure(metrics *sidecar.Metrics, url string) (watch leaderelection.WatchConfig, err error) {
	var trace leaderelection.Trace
	if s.cfg.Trace != nil {
		trace = *s.cfg.Trace
	}
	trace.News = s.hub.Record
	op := trace.StoreOp
	trace.StoreOp = func(o leaderelection.StoreOp) {
		s.hub.Looked()
		if op != nil {
			op(o)
		}
	}
	s.cfg.Trace = &trace
	name := s.f.electionName
	if name == "" {
		name = sidecar.ElectionName(url)
	}
	if s.f.observe {
		watch = leaderelection.WatchConfig{
			MaxClockSkew: s.cfg.MaxClockSkew, SharedClock: s.cfg.SharedClock, PollInterval: s.cfg.PollInterval, Logger: s.cfg.Logger, Trace: s.cfg.Trace,
		}
		_, err = metrics.Observer(name, &watch)
	} else {
		_, err = metrics.Candidate(name, &s.cfg)
	}
	return watch, err
}

// lead campaigns in the election until ctx ends.
func (s *sidecarRun) lead(ctx context.Context, cancel context.CancelCauseFunc, d leaderelection.RaceDecider) error {
	s.cfg.Decider = d
	if s.job == nil {
		s.cfg.OnElected = func(ctx context.Context, _ *leaderelection.TimeView) { <-ctx.Done() }
	}
	if s.pods != nil {
		podlabel.Follow(&s.cfg, s.pods, s.cfg.LeaderID, s.cfg.Logger)
	}
	if s.job != nil {
		return s.job.campaign(ctx, cancel, s.cfg, s.begun)
	}
	campaign, err := s.cfg.Start(ctx)
	if err != nil {
		return err
	}
	s.begun(campaign)
	return campaign.Wait()
}

func (s *sidecarRun) begun(c *leaderelection.Campaign) {
	s.campaign.Store(c)
	s.tell.begun(c)
}

func (s *sidecarRun) outcome(err error) error {
	if s.job != nil {
		return s.job.outcome(err)
	}
	return ended(err)
}

var errNotOpen = errors.New("the store is not open yet")

// serve serves HTTP until the function that it returns is called.
func (s *sidecarRun) serve(l net.Listener, m *sidecar.Metrics) (stop func()) {
	id := s.cfg.LeaderID
	if s.f.observe {
		id = ""
	}
	ask := func(do func(leaderelection.RaceDecider) error) error {
		d := s.decider.Load()
		if d == nil {
			return errNotOpen
		}
		return do(*d)
	}
	return s.f.serve(l, s.cfg.Logger, s.stopped, func(c sidecar.Config) http.Handler {
		c.Hub, c.Campaign, c.ID, c.Skew, c.Metrics, c.Token, c.Fit = s.hub, s.campaign.Load, id, s.cfg.MaxClockSkew, m.Handler(), s.token, s.a.fit
		c.StepDown = func(ctx context.Context) error {
			return ask(func(d leaderelection.RaceDecider) error { return leaderelection.StepDown(ctx, d) })
		}
		c.Transfer = func(ctx context.Context, to string) error {
			return ask(func(d leaderelection.RaceDecider) error { return leaderelection.Transfer(ctx, d, to) })
		}
		return sidecar.Handler(c)
	})
}

// slogErrors is what net/http wants to log to.
func slogErrors(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelWarn) }
