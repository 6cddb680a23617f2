package legrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
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
// serves any number of channels, each of which watches for itself.
type Builder struct {
	watch   leaderelection.WatchConfig
	scheme  string
	check   func(hostPort string) error
	ownRule bool // check is the default
	links   *links
}

var _ resolver.Builder = (*Builder)(nil)

// NewBuilder returns a Builder for the election that w watches. What is wrong
// with w is told by Build, and so by grpc.NewClient or the channel's first call.
func NewBuilder(w leaderelection.WatchConfig) *Builder {
	return &Builder{watch: w, scheme: DefaultScheme, check: route.CheckAddress, ownRule: true, links: newLinks()}
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
	r := &following{cc: cc, cancel: cancel, failed: make(chan error, 1), now: make(chan struct{}, 1), done: make(chan struct{}), decider: b.watch.Decider, logger: b.watch.Logger, check: b.check, links: b.links}
	f, err := route.Follow(ctx, b.watch, r.noteFailure)
	if err != nil {
		cancel()
		return nil, err
	}
	r.table = f
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
	cc      resolver.ClientConn
	table   *route.Follower
	decider leaderelection.RaceDecider
	logger  *slog.Logger
	check   func(hostPort string) error
	links   *links
	cancel  context.CancelFunc
	failed  chan error    // a read that failed; the last one only
	now     chan struct{} // ResolveNow was called
	done    chan struct{}
	reads   sync.WaitGroup
}

// ResolveNow implements resolver.Resolver: the record is read at once, or a
// second after the last time that was asked for. It does not wait for it.
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
	<-r.table.Done()
	read := make(chan struct{})
	go func() { r.reads.Wait(); close(read) }()
	select {
	case <-read:
	case <-time.After(100 * time.Millisecond):
	}
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
	var asked, due time.Time // the last read for ResolveNow, and the next, if any
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
				due = asked.Add(minReadInterval)
			}
		}
		if now := time.Now(); !due.IsZero() && !now.Before(due) {
			asked, due = now, time.Time{}
			r.reads.Go(func() { r.read(ctx) })
		}
	}
}

// told is what gRPC was last told.
type told struct {
	number    leaderelection.ElectionNumber
	led       bool
	addresses []string
}

// tell hands s to gRPC where that is news to it. Extensions of a leadership are not.
// It returns until when that holds (zero: until s changes), and what is closed if an
// address turns out before to lead to another process.
func (r *following) tell(s *route.State, last *told) (until time.Time, refused <-chan struct{}) {
	if !s.Known() {
		return until, nil // let calls wait: what there is will be known soon, or the failure told
	}
	next := told{number: s.Entry.ElectionNumber, led: s.Led()}
	news := last.number != next.number || last.led != next.led
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
	fault := s.Fault
	var allowed []string
	for _, a := range s.Addresses {
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
	for _, a := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
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
	if r.logger != nil {
		r.logger.Warn("leaderelection: legrpc", "leader", s.Entry.LeaderID, "election", uint64(s.Entry.ElectionNumber), "err", err)
	}
}

// read reads the record, besides the watch.
func (r *following) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if e, err := r.decider.ReadCurrent(ctx); err == nil && e != nil {
		r.table.News(*e)
	}
}
