package legrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// DefaultScheme is the scheme of a Builder's targets.
const DefaultScheme = "leaderelection"

// Builder is a resolver.Builder whose targets are an election's leader. Hand its
// [Builder.DialOptions] to grpc.NewClient, and dial "leaderelection:///name": the name is not
// looked up, but is what gRPC takes as the :authority, and for TLS as the name in
// the leader's certificate. Its methods may be called concurrently; one Builder
// serves any number of channels, which have one watch of the election among them: it
// begins with the first and ends with the last.
type Builder struct {
	watcher    *watcher
	scheme     string
	choose     func(leader leaderelection.RaceEntry) []string
	serverName func(leader leaderelection.RaceEntry) string
	check      func(hostPort string) error
	ownRule    bool // check is the default
	links      *links
}

var _ resolver.Builder = (*Builder)(nil)

// NewBuilder returns a Builder for the election that w watches. What is wrong
// with w is told by Build, and so by grpc.NewClient or the channel's first call.
func NewBuilder(w leaderelection.WatchConfig) *Builder {
	return &Builder{watcher: &watcher{config: w, users: map[*following]struct{}{}}, scheme: DefaultScheme, check: route.CheckAddress, ownRule: true, links: newLinks()}
}

// WithCheckAddress returns a Builder that asks check about each address of a leader: an
// error keeps calls away from it. Whoever can write the election's record directs the
// calls, with their credentials: so allow what your candidates can have. By default
// link-local, multicast and unspecified addresses are refused.
func (b *Builder) WithCheckAddress(check func(hostPort string) error) *Builder {
	c := *b
	c.check, c.ownRule, c.links = check, false, newLinks()
	return &c
}

// WithAddresses returns a Builder that goes where choose says that a leader is: for
// candidates that serve several things, at ports of their own. See [Port] and [Named]. What
// it returns must be fit to be dialled and allowed, as a HostPort must. It is asked for each
// new record, and returns at once. By default the leader's HostPorts are dialled. The
// new Builder shares the watch of b.
func (b *Builder) WithAddresses(choose func(leader leaderelection.RaceEntry) []string) *Builder {
	c := *b
	c.choose, c.links = choose, newLinks()
	return &c
}

// Port is for WithAddresses: the leader's HostPorts that have that port.
func Port(port string) func(leader leaderelection.RaceEntry) []string { return route.Port(port) }

// Named is for WithAddresses: the addresses that the leader's ConnectionParams have by that
// name. They are JSON then, in which each name has addresses of host and port, and which may
// be the channel's service config as well:
//
//	{"addresses": {"orders": ["10.0.0.1:9000"]}, "loadBalancingConfig": [{"pick_first": {}}]}
func Named(name string) func(leader leaderelection.RaceEntry) []string { return route.Named(name) }

// WithServerName returns a Builder by which each leader has a name of its own in its
// certificate, such as its LeaderID: gRPC verifies that name, and sends it as the :authority,
// in place of the target's. So the certificate of a candidate that was deposed is worth
// nothing, also at the same address. Where name returns "", the target's counts. The
// new Builder shares the watch of b.
func (b *Builder) WithServerName(name func(leader leaderelection.RaceEntry) string) *Builder {
	c := *b
	c.serverName, c.links = name, newLinks()
	return &c
}

// WithScheme returns a Builder for targets of another scheme, in lower case: for a
// program that dials the leaders of several elections.
func (b *Builder) WithScheme(scheme string) *Builder {
	c := *b
	c.scheme, c.links = scheme, newLinks()
	return &c
}

// Scheme implements resolver.Builder.
func (b *Builder) Scheme() string { return b.scheme }

// Build implements resolver.Builder.
func (b *Builder) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &following{Builder: b, cc: cc, cancel: cancel, failed: make(chan error, 1), now: make(chan struct{}, 1), done: make(chan struct{})}
	var err error
	if r.table, err = b.watcher.join(r); err != nil {
		cancel()
		return nil, err
	}
	go r.run(ctx)
	return r, nil
}

// minReadInterval is how far apart reads asked for by ResolveNow are: gRPC asks
// whenever a connection breaks, of every channel at once.
const minReadInterval = time.Second

// readTimeout bounds one such read.
const readTimeout = 5 * time.Second

// following is a resolver of one channel. All that it tells gRPC it tells from
// one goroutine, run's.
type following struct {
	*Builder
	cc     resolver.ClientConn
	table  *running
	cancel context.CancelFunc
	failed chan error    // a read that failed; the last one only
	now    chan struct{} // ResolveNow was called
	done   chan struct{}
}

// ResolveNow implements resolver.Resolver: the record is read at once, or a
// second after the last time that any of the Builder's channels asked for it. It does not
// wait for it.
func (r *following) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case r.now <- struct{}{}:
	default: // asked already
	}
}

// Close implements resolver.Resolver: nothing of it runs any more when it
// returns, but for a store call that does not heed its ctx.
func (r *following) Close() {
	r.cancel()
	<-r.done
	r.watcher.leave(r)
}

// noteFailure hands a failure to run, in place of one that waits.
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
	var asked, due time.Time // when a read was asked for, and when it may begin; if any
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
		if !due.IsZero() {
			wake = min(wake, time.Until(due))
		}
		timer.Reset(max(0, wake))
		// Failures are reported while nothing is known: calls would otherwise
		// wait for they know not what.
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
		case <-r.now:
			if due.IsZero() {
				asked = time.Now()
				due = r.table.due(asked)
			}
		}
		if !due.IsZero() && !time.Now().Before(due) {
			due = time.Time{}
			r.table.readFor(asked, r.watcher.config.Decider)
		}
	}
}

// told is what gRPC was last told.
type told struct {
	number    leaderelection.ElectionNumber
	led       bool
	addresses []string
	params    string // ConnectionParams, which a leader may change
}

// tell hands s to gRPC where that is news to it. Extensions of a leadership are not.
// It returns until when that holds (zero: until s changes), and what is closed if an
// address turns out before to lead to another process.
func (r *following) tell(s *route.State, last *told) (until time.Time, refused <-chan struct{}) {
	if !s.Known() {
		return until, nil // let calls wait: what there is will be known soon, or the failure told
	}
	next := told{number: s.Entry.ElectionNumber, led: s.Led(), params: string(s.Entry.ConnectionParams)}
	news := last.number != next.number || last.led != next.led || last.params != next.params
	var fault error
	if next.led {
		var allowed []string
		allowed, fault = r.allowed(s, news)
		r.links.leads(next.number, allowed)
		next.addresses, until, refused = r.links.offer(allowed)
	}
	if !news && slices.Equal(last.addresses, next.addresses) {
		return until, refused
	}
	*last = next
	switch {
	case !next.led:
		r.unled(fmt.Errorf("legrpc: there is no leader (election %d is over)", next.number))
	case len(next.addresses) == 0:
		r.unled(fmt.Errorf("legrpc: the leader cannot be reached: %w", fault))
	default:
		r.update(s, next.addresses)
	}
	return until, refused
}

// allowed returns the addresses of the leader that calls may be sent to, and what is
// wrong with the others.
func (r *following) allowed(s *route.State, warn bool) ([]string, error) {
	chosen, fault := s.Select(r.choose)
	var allowed []string
	for _, a := range chosen {
		if err := r.check(a); err != nil {
			fault = errors.Join(fault, err)
			continue
		}
		allowed = append(allowed, a)
	}
	if fault != nil && warn {
		r.warn(s, fault)
	}
	return allowed, fault
}

// update hands addresses to gRPC.
func (r *following) update(s *route.State, addresses []string) {
	state := resolver.State{ServiceConfig: r.serviceConfig(s)}
	name := ""
	if r.serverName != nil {
		name = r.serverName(*s.Entry.Clone())
	}
	for _, a := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a, ServerName: name})
	}
	if err := r.cc.UpdateState(state); err != nil {
		r.warn(s, fmt.Errorf("gRPC refuses the leader's addresses: %w", err))
	}
}

// unled takes all addresses away: calls that are wait-for-ready wait, the others
// fail with err.
//
// An error alone does not do it: gRPC ignores it while it has addresses. An empty
// state does, but a call that comes between it and the error is told "produced
// zero addresses", and round_robin has nobody left to hand the error to: it says
// "no children to pick from" until there is a leader. An endpoint without
// addresses closes the connections as well, and calls wait until the error is
// there. A policy that refuses it gets the empty state.
func (r *following) unled(err error) {
	if r.cc.UpdateState(resolver.State{Endpoints: []resolver.Endpoint{{}}}) != nil {
		_ = r.cc.UpdateState(resolver.State{}) // it says that there is no address, which is meant
	}
	r.cc.ReportError(err)
}

// serviceConfig is the leader's ConnectionParams where they are a service config.
// Where they are something else they are none of gRPC's business.
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
	if logger := r.watcher.config.Logger; logger != nil {
		logger.Warn("leaderelection: legrpc", "leader", s.Entry.LeaderID, "election", uint64(s.Entry.ElectionNumber), "err", err)
	}
}
