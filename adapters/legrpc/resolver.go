package legrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// Builder is a resolver.Builder whose targets resolve to the leader of an election. Pass its
// [Builder.DialOptions] to grpc.NewClient, and dial "leaderelection:///name". The name is not
// looked up: gRPC uses it as the :authority and, for TLS, as the name in the leader's certificate.
//
// One Builder serves any number of channels. They share one watch of the election, which begins
// with the first channel and ends with the last. Its methods may be called concurrently.
type Builder struct {
	watcher *watcher
	o       BuilderOptions
	ownRule bool // o.CheckAddress is the default
	links   *links
}

var _ resolver.Builder = (*Builder)(nil)

// BuilderOptions are the settings of [NewBuilder]. The zero value is right for most.
type BuilderOptions struct {
	// CheckAddress returns an error for an address to which no call may be sent. Anybody who can
	// write the election's record directs the calls, with their credentials. So allow only
	// addresses that your candidates can have. It is called for each address of a leader. Nil
	// means that link-local, multicast and unspecified addresses are refused.
	CheckAddress func(hostPort string) error
	// Addresses returns the addresses of a leader. Set it if candidates serve several things at
	// different ports; see [Port] and [Named]. The addresses must be valid and allowed, like
	// HostPorts. It is called for each new record, and must return at once. Nil means the
	// leader's HostPorts.
	Addresses func(leader leaderelection.RaceEntry) []string
	// ServerName returns the name in a leader's certificate, such as its LeaderID. gRPC verifies
	// that name, and sends it as the :authority, in place of the target's name. So the
	// certificate of a deposed candidate is useless, even at the same address. If ServerName
	// is nil or returns "", the target's name counts.
	ServerName func(leader leaderelection.RaceEntry) string
}

// NewBuilder returns a Builder for the election that w watches. Options may be nil. If w is wrong,
// Build returns the error, and so does grpc.NewClient or the channel's first call. The Builder's
// warnings go to w.Logger. If that is nil, they go to slog.Default(), as the watch's do.
func NewBuilder(w leaderelection.WatchConfig, opts *BuilderOptions) *Builder {
	return (&Builder{watcher: &watcher{config: w, users: map[*following]struct{}{}}}).With(opts)
}

// With returns a Builder with these options, which shares the watch of b. Use it to dial the leader
// in several ways.
func (b *Builder) With(opts *BuilderOptions) *Builder {
	c := &Builder{watcher: b.watcher, o: route.Or(opts), links: newLinks()}
	if c.ownRule = c.o.CheckAddress == nil; c.ownRule {
		c.o.CheckAddress = route.CheckAddress
	}
	return c
}

// Port chooses the leader's HostPorts that have the given port, for BuilderOptions.Addresses.
func Port(port string) func(leader leaderelection.RaceEntry) []string { return route.Port(port) }

// Named chooses the addresses with the given name in the leader's ConnectionParams, for
// BuilderOptions.Addresses. The ConnectionParams must be JSON, in which each name has addresses of
// host and port. They may be the channel's service config as well:
//
//	{"addresses": {"orders": ["10.0.0.1:9000"]}, "loadBalancingConfig": [{"pick_first": {}}]}
func Named(name string) func(leader leaderelection.RaceEntry) []string { return route.Named(name) }

// Scheme implements resolver.Builder.
func (b *Builder) Scheme() string { return "leaderelection" }

// Build implements resolver.Builder.
func (b *Builder) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &following{Builder: b, cc: cc, cancel: cancel, failed: make(chan error, 1), done: make(chan struct{})}
	var err error
	if r.table, err = b.watcher.join(r); err != nil {
		cancel()
		return nil, err
	}
	go r.run(ctx)
	return r, nil
}

// following is the resolver of one channel. Only the goroutine of run calls gRPC.
type following struct {
	*Builder
	cc     resolver.ClientConn
	table  *route.Follower
	cancel context.CancelFunc
	failed chan error // the error of the last read that failed
	done   chan struct{}
}

// ResolveNow implements resolver.Resolver. gRPC calls it whenever a connection breaks: then the record is read besides
// the watch, for all channels of the Builder at once. ResolveNow does not wait for that.
func (r *following) ResolveNow(resolver.ResolveNowOptions) { r.watcher.readNow() }

// Close implements resolver.Resolver. When it returns, nothing of the resolver runs any more,
// except for a store call whose ctx has ended.
func (r *following) Close() {
	r.cancel()
	<-r.done
	r.watcher.leave(r)
}

// noteFailure hands a failure to run, in place of an earlier failure that still waits.
func (r *following) noteFailure(err error) {
	for {
		select {
		case r.failed <- err:
			return
		default:
		}
		select {
		case <-r.failed:
		default:
		}
	}
}

// run tells gRPC of each change until ctx ends.
func (r *following) run(ctx context.Context) {
	defer close(r.done)
	var told told
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s := r.table.Load()
		until, refused := r.tell(s, &told)
		wake := time.Hour
		if s.Led() {
			wake = s.UntilNext()
		}
		if !until.IsZero() {
			wake = min(wake, time.Until(until))
		}
		timer.Reset(max(0, wake))
		// Failures are reported while nothing is known. Otherwise calls would wait without
		// a reason being told.
		failed := r.failed
		if s.Known() {
			failed = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-s.Changed():
		case <-refused:
		case <-timer.C:
		case err := <-failed:
			r.cc.ReportError(fmt.Errorf("legrpc: the election's record cannot be read: %w", err))
		}
	}
}

// told is what gRPC was told last.
type told struct {
	number    leaderelection.ElectionNumber
	led       bool
	addresses []string
	params    string // ConnectionParams, which a leader may change
}

// tell hands s to gRPC if that is news to it. Extensions of a leadership are not. It returns until
// when that is valid (zero: until s changes). It also returns a channel that is closed if an
// address turns out to lead to another process.
func (r *following) tell(s *route.State, last *told) (until time.Time, refused <-chan struct{}) {
	if !s.Known() {
		return until, nil // let calls wait: the record will be known soon, or a failure reported
	}
	next := told{number: s.Entry.ElectionNumber, led: s.Led(), params: string(s.Entry.ConnectionParams)}
	news := last.number != next.number || last.led != next.led || last.params != next.params
	var fault error
	if next.led {
		var allowed []string
		allowed, fault = route.Addresses(&s.Entry, r.o.Addresses, r.o.CheckAddress)
		if fault != nil && news {
			r.warn(s, fault)
		}
		r.links.leads(next.number, allowed)
		next.addresses, until, refused = r.links.offer(allowed)
	}
	if !news && slices.Equal(last.addresses, next.addresses) {
		return until, refused
	}
	*last = next
	switch {
	case !next.led:
		r.unled(fmt.Errorf("legrpc: there is no leader (the leadership with token %d is over)", next.number))
	case len(next.addresses) == 0:
		r.unled(fmt.Errorf("legrpc: the leader cannot be reached: %w", fault))
	default:
		r.update(s, next.addresses)
	}
	return until, refused
}

// update hands addresses to gRPC.
func (r *following) update(s *route.State, addresses []string) {
	state := resolver.State{ServiceConfig: r.serviceConfig(s)}
	name := ""
	if r.o.ServerName != nil {
		name = r.o.ServerName(*s.Entry.Clone())
	}
	for _, a := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a, ServerName: name})
	}
	if err := r.cc.UpdateState(state); err != nil {
		r.warn(s, fmt.Errorf("gRPC refuses the leader's addresses: %w", err))
	}
}

// unled takes all addresses away. Calls that are wait-for-ready then wait, and the others fail with
// err.
//
// An error alone is not enough: gRPC ignores it while it has addresses. An empty state is, but it
// has two faults. A call that comes between it and the error fails with "produced zero addresses".
// And round_robin cannot hand the error on: it says "no children to pick from" until there is a
// leader. An endpoint without addresses closes the connections as well, and calls wait until the
// error is there. A policy that refuses such an endpoint gets the empty state.
func (r *following) unled(err error) {
	if r.cc.UpdateState(resolver.State{Endpoints: []resolver.Endpoint{{}}}) != nil {
		_ = r.cc.UpdateState(resolver.State{}) // its error says that there is no address, as intended
	}
	r.cc.ReportError(err)
}

// serviceConfig returns the leader's ConnectionParams if they are a service config. Other
// ConnectionParams are ignored.
func (r *following) serviceConfig(s *route.State) *serviceconfig.ParseResult {
	params := s.Entry.ConnectionParams
	if len(params) == 0 {
		return nil
	}
	parsed := r.cc.ParseServiceConfig(string(params))
	if parsed == nil || parsed.Err != nil {
		err := errors.New("gRPC did not parse it")
		if parsed != nil {
			err = parsed.Err
		}
		r.warn(s, fmt.Errorf("the leader's ConnectionParams are no service config, and left out: %w", err))
		return nil
	}
	return parsed
}

func (r *following) warn(s *route.State, err error) {
	warnings.Or(r.watcher.config.Logger).Warn("leaderelection: legrpc", "leader", s.Entry.LeaderID, "token", uint64(s.Entry.ElectionNumber), "err", err)
}

// watcher is the one watch of all channels of a Builder: it runs while there are any.
type watcher struct {
	config leaderelection.WatchConfig

	mu    sync.Mutex
	run   *route.Follower // nil while there is no channel
	users map[*following]struct{}
	due   bool      // a read besides the watch is
	read  time.Time // when the last one began
}

// join begins the watch, if r is its first channel.
func (w *watcher) join(r *following) (*route.Follower, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil {
		run, err := route.Follow(w.config, w.failed)
		if err != nil {
			return nil, err
		}
		w.run = run
	} else if err := w.run.Failure(); err != nil {
		r.noteFailure(err)
	}
	w.users[r] = struct{}{}
	return w.run, nil
}

// leave ends the watch if r was its last channel. Then nothing of it runs any more, except
// for a store call whose ctx has ended.
func (w *watcher) leave(r *following) {
	w.mu.Lock()
	delete(w.users, r)
	if len(w.users) > 0 || w.run == nil {
		w.mu.Unlock()
		return
	}
	run := w.run
	w.run = nil
	w.mu.Unlock()
	run.Close()
}

// readInterval is the shortest time between two reads besides the watch, readTimeout how long one may take.
const readInterval, readTimeout = time.Second, 5 * time.Second

// readNow reads the record besides the watch, as soon as readInterval allows.
func (w *watcher) readNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil || w.due {
		return
	}
	w.due = true
	run, ctx, pause := w.run, w.run.Context(), time.Until(w.read.Add(readInterval))
	go func() {
		slept := clocks.System().SleepFor(ctx, pause)
		w.mu.Lock()
		w.due, w.read = false, time.Now()
		w.mu.Unlock()
		if !slept {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		if e, err := w.config.Decider.ReadCurrent(ctx); err == nil && e != nil && ctx.Err() == nil {
			run.News(*e)
		}
	}()
}

// failed reports a failed read to all channels.
func (w *watcher) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.users {
		r.noteFailure(err)
	}
}
