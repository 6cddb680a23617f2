package cli

import (
	"cmp"
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
	"github.com/c8e606e4/leaderelection/adapters/leprom"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/leaderslice"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/sidecar"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

type sidecarFlags struct {
	runFlags
	served
	electionName string
	slice        string
	observe      bool
}

// served are the flags of what serves HTTP.
type served struct {
	listen, secretFile string
	readOnly           bool
	allowHost          []string
}

func (s *served) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:4040", "the address to serve HTTP on; port 0 is any free port")
	f.StringVar(&s.secretFile, "secret-file", "", "a file with the secret that every POST must have, even from this machine")
	f.BoolVar(&s.readOnly, "read-only", false, "refuse every POST")
	f.StringSliceVar(&s.allowHost, "allow-host", nil, "another name to allow as a request's Host; * allows any; may be repeated")
}

// check returns what reads the secret, or what is wrong.
func (s *served) check(a *app) (secret func() (string, error), err error) {
	_, port, err := net.SplitHostPort(s.listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return nil, usage("--listen: %v: want HOST:PORT, or :PORT for every address of this machine", err)
	}
	if s.readOnly && s.secretFile != "" {
		return nil, usage("--read-only answers no POST: there is nothing for --secret-file to allow")
	}
	if s.secretFile == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	secret = func() (string, error) { return readSecret(s.secretFile) } // for each request: it may be renewed
	a.warnOfReaders("--secret-file", s.secretFile)
	_, err = secret()
	return secret, err
}

// serve serves HTTP by what handle makes of the flags until the function that it returns is
// called, which closes stopped.
func (s *served) serve(l net.Listener, log *slog.Logger, stopped chan struct{}, handle func(sidecar.Config) http.Handler) (stop func()) {
	most := max(2, min(256, openFiles()/4))
	limited := sidecar.Limit(l, most)
	c := sidecar.Config{ReadOnly: s.readOnly, MaxWaiting: most - most/4, Logger: log, Ended: stopped}
	for _, host := range s.allowHost {
		c.Hosts = append(c.Hosts, strings.ToLower(host))
	}
	server := sidecar.Server(handle(c), limited, slogErrors(log))
	log.Info("serving", "url", "http://"+l.Addr().String())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the HTTP server has failed: nothing is served from now on", "err", err)
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
		Use: "sidecar [flags] [URL] [-- COMMAND [ARGUMENT...]]",

		DisableFlagsInUseLine: true, // cobra writes them last: there they belong to COMMAND

		Short: "Be a candidate or an observer, and serve over HTTP who leads",
		Args:  commandAfterDash(false),
		RunE: a.onURLAndCommand(func(c *cobra.Command, url string, command []string) error {
			return a.sidecar(c.Context(), &f, url, command)
		}),
	}
	f.runFlags.flags(a, c)
	f.served.flags(c)
	c.Flags().BoolVar(&f.observe, "observe", false, "follow the election, and do not campaign")
	c.Flags().StringVar(&f.electionName, "election-name", "", "the election's name in the metrics, the same for all candidates (default the store's URL, without credentials)")
	c.Flags().StringVar(&f.slice, "endpoint-slice", "", "in Kubernetes: the EndpointSlice of the Service that is to lead to the leader's --host-port")
	return c
}

func (a *app) sidecar(ctx context.Context, f *sidecarFlags, url string, command []string) error {
	switch err := f.runFlags.check(&a.common); {
	case err != nil && len(command) > 0:
		return err
	case f.observe && f.readiness.when == whenLeading:
		return usage("an observer never leads: --observe and --ready-when leading do not go together")
	case f.observe && len(command) > 0:
		return usage("an observer never leads: --observe and a COMMAND do not go together")
	case f.observe && f.slice != "":
		return usage("an observer never leads: --observe and --endpoint-slice do not go together")
	}
	secret, err := f.served.check(a)
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
	s := &sidecarRun{a: a, f: f, cfg: cfg, tell: tell, hub: sidecar.NewHub(a.common.skew), secret: secret, stopped: make(chan struct{})}
	defer s.hub.Close()
	if len(command) > 0 {
		if err := f.find(command[0]); err != nil {
			return err
		}
		if s.job, err = newJob(a, &f.runFlags, &s.cfg, url, command); err != nil {
			return err
		}
		defer s.job.runner.Close()
	}
	if f.slice != "" {
		if s.slice, err = leaderslice.Open(f.slice, cfg.HostPort); err != nil {
			if errors.Is(err, leaderslice.ErrHostPort) {
				return usage("--endpoint-slice: %v", err)
			}
			return fmt.Errorf("--endpoint-slice: %w", err)
		}
	}
	return s.run(ctx, url)
}

func readSecret(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", usage("--secret-file: %v", err)
	}
	secret := strings.TrimSpace(string(data))
	if len(secret) < 16 {
		return "", usage("--secret-file: %s has %d characters, want at least 16", path, len(secret))
	}
	return secret, nil
}

// sidecarRun is a running sidecar.
type sidecarRun struct {
	a       *app
	f       *sidecarFlags
	cfg     leaderelection.Config
	tell    *supervisor
	job     *job              // nil: no command
	slice   leaderslice.Slice // nil: no Service is to lead here
	hub     *sidecar.Hub
	secret  func() (string, error)
	decider atomic.Pointer[leaderelection.RaceDecider]
	stopped chan struct{}
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
	s.tell.observes = s.f.observe
	watch, err := s.measure(metrics, url)
	if err != nil {
		return err
	}
	defer s.tell.start(ctx)()
	defer s.serve(listener, metrics)()
	if s.f.observe {
		url = store.Existing(url)
	}
	d, err := s.a.openElection(ctx, url, s.a.openStore)
	if err != nil {
		return s.outcome(err)
	}
	defer store.Close(d)
	s.decider.Store(&d)
	if s.f.observe {
		s.tell.line.Phase(s.tell.idle())
		watch.Decider = d
		return s.outcome(watch.Watch(ctx, func(context.Context, leaderelection.RaceEntry) {}))
	}
	return s.outcome(s.lead(ctx, cancel, d))
}

// measure lets hub, metrics and supervisor know what the candidate does, or the observer that
// it returns.
func (s *sidecarRun) measure(metrics *sidecar.Metrics, url string) (watch leaderelection.WatchConfig, err error) {
	var measured *leprom.Election
	name := cmp.Or(s.f.electionName, sidecar.ElectionName(url))
	if s.f.observe {
		watch = leaderelection.WatchConfig{
			MaxClockSkew: s.cfg.MaxClockSkew, ClockPolicy: s.cfg.ClockPolicy, PollInterval: s.cfg.PollInterval, Logger: s.cfg.Logger,
		}
		measured, err = metrics.Observer(name, watch)
	} else {
		measured, err = metrics.Candidate(name, s.cfg)
	}
	if err != nil {
		return watch, err
	}
	hub := &leaderelection.Trace{News: s.hub.Record, StoreOp: func(leaderelection.StoreOp) { s.hub.Looked() }}
	s.cfg.Trace = s.tell.traced(leaderelection.JoinTraces(measured.Trace(), s.cfg.Trace, hub))
	watch.Trace = s.cfg.Trace
	return watch, nil
}

// lead campaigns in the election until ctx ends.
func (s *sidecarRun) lead(ctx context.Context, cancel context.CancelCauseFunc, d leaderelection.RaceDecider) error {
	s.cfg.Decider = d
	if s.job == nil {
		s.cfg.OnElected = func(ctx context.Context, _ *leaderelection.TimeView) { <-ctx.Done() }
	}
	if s.slice != nil {
		leaderslice.Follow(&s.cfg, s.slice, s.cfg.Logger)
	}
	if s.job != nil {
		return s.job.campaign(ctx, cancel, s.cfg, s.tell.begun)
	}
	campaign, err := start(ctx, s.cfg, nil)
	if err != nil {
		return err
	}
	s.tell.begun(campaign)
	return campaign.Wait()
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
		c.Hub, c.Campaign, c.ID, c.Skew, c.Metrics, c.Secret, c.Fit = s.hub, s.tell.campaign.Load, id, s.cfg.MaxClockSkew, m.Handler(), s.secret, s.a.fit
		c.Health = s.tell.line.Account
		c.StepDown = func(ctx context.Context, force bool) error {
			return ask(func(d leaderelection.RaceDecider) error { return leaderelection.StepDown(ctx, d, force) })
		}
		c.Transfer = func(ctx context.Context, to string) error {
			return ask(func(d leaderelection.RaceDecider) error { return leaderelection.Transfer(ctx, d, to) })
		}
		return sidecar.Handler(c)
	})
}

// slogErrors is what net/http wants to log to.
func slogErrors(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelWarn) }
