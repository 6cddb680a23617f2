package legrpc

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/internal/route/viewctx"
	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
)

// ServerOptions are the settings of the server's interceptors. The zero value is right for most.
type ServerOptions struct {
	// Exempt reports whether a method ("/package.Service/Method") is served even if this process
	// does not lead, whatever it owns. Nil means the methods of grpc.health and grpc.reflection.
	Exempt func(fullMethod string) bool
	// Endless reports whether a method's calls go on until somebody ends them, as subscriptions
	// do. When leadership, or the shard, is being given up, such a call is ended like one whose
	// view has ended. All other calls are waited for, and keep the lease, or the shard, for up to
	// DrainTimeout. Nil means that no call is endless.
	Endless func(fullMethod string) bool
	// Election names the election, as ClientOptions.Election does, or the group, as
	// ShardOptions.Election does: a client believes only the refusals of its own election. Set
	// it if calls pass through services of several elections or groups.
	Election string
}

// settled returns the options with their defaults.
func (o *ServerOptions) settled() ServerOptions {
	s := route.Or(o)
	if s.Exempt == nil {
		s.Exempt = func(method string) bool {
			return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
		}
	}
	if s.Endless == nil {
		s.Endless = func(string) bool { return false }
	}
	return s
}

// Refusal describes why a server behind the interceptors has not answered a call. It is in the
// details of the status, as a google.rpc.ErrorInfo. See [RefusalOf].
type Refusal struct {
	// Processed says that the call had reached its handler, and may have taken effect. If it
	// is false, the call had not, and may be sent elsewhere.
	Processed bool
	// Election is the server's ServerOptions.Election.
	Election string
}

// Contents of the ErrorInfo.
const (
	domain      = "leaderelection"
	reasonNot   = "NOT_LEADER"
	reasonLost  = "LEADERSHIP_LOST"
	keyElection = "election"
)

// RefusalOf returns the Refusal in err, and whether there is one. Use it to decide whether to send
// a call again. Err may wrap the status error that a call returned.
func RefusalOf(err error) (Refusal, bool) {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return Refusal{}, false
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && isMark(info) {
			return Refusal{Processed: info.Reason == reasonLost, Election: info.Metadata[keyElection]}, true
		}
	}
	return Refusal{}, false
}

// isMark reports whether info marks a refusal.
func isMark(info *errdetails.ErrorInfo) bool {
	return info.Domain == domain && (info.Reason == reasonNot || info.Reason == reasonLost)
}

// unmarked returns a handler's error without the mark of a refusal that the handler has relayed
// from another service. The mark would say that nobody has worked on this call.
func unmarked(err error) error {
	if _, is := RefusalOf(err); !is {
		return err
	}
	s, _ := status.FromError(err)
	p, details := s.Proto(), s.Details()
	kept := p.Details[:0]
	for i, d := range details {
		if info, ok := d.(*errdetails.ErrorInfo); !ok || !isMark(info) {
			kept = append(kept, p.Details[i])
		}
	}
	p.Details = kept
	return status.ErrorProto(p)
}

// leader has the calls that its candidate's leadership admits.
type leader struct {
	candidate leaderelection.Candidate
	o         ServerOptions
}

// refuser says why calls are not served.
type refuser struct {
	election string
	not      string // why a call is refused
	ceased   string // why its answer was thrown away
}

// UnaryServerInterceptor serves calls only while this process leads. Use it at every candidate.
//
// It asks the view before the handler is called. If this process does not lead, it refuses the call
// with FailedPrecondition (see [RefusalOf]). It asks the view again when the handler has returned.
// If the view has ended meanwhile, the answer is thrown away, and the call ends with Unavailable,
// since it may have taken effect. That is so even if another leadership of this process has begun.
//
// The handler's ctx ends with the view, at most a second later, with the cause
// leaderelection.ErrNotLeading. [leaderelection.ViewFrom] returns the view from that ctx. Take the
// fencing token from that view, not from Campaign.View, which may belong to a later leadership.
//
// Once leadership is being given up, no new calls are served. The lease is kept until the handlers of
// those under way have returned, for at most DrainTimeout. If a handler starts a goroutine that goes on
// after that, the goroutine must ask the view itself.
func UnaryServerInterceptor(c leaderelection.Candidate, opts *ServerOptions) grpc.UnaryServerInterceptor {
	l := &leader{c, opts.settled()}
	return unary(l.o.Exempt, l.admit)
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. Once the view has ended, nothing
// more is sent. The stream's ctx is cancelled within a second of that, with the cause
// leaderelection.ErrNotLeading, so that no stream idles at a process that does not lead. Streams that
// last until somebody ends them delay each hand-over by DrainTimeout and up to a term: see ServerOptions.Endless.
func StreamServerInterceptor(c leaderelection.Candidate, opts *ServerOptions) grpc.StreamServerInterceptor {
	l := &leader{c, opts.settled()}
	return streaming(l.o.Exempt, l.admit)
}

// admission admits a call of a method, or returns why not.
type admission func(ctx context.Context, method string) (*admitted, error)

// admitted is a call that is served.
type admitted struct {
	ctx   context.Context
	view  viewctx.View // under which it is served
	leave func()       // must be called when the handler has returned
	refuser
}

// admit is the admission of calls to the leader. The lease is kept for the call until it leaves.
func (l *leader) admit(ctx context.Context, method string) (*admitted, error) {
	view := l.candidate.View()
	no := refuser{
		l.o.Election, "leaderelection: this process does not lead",
		"leaderelection: this process has ceased to lead during the call, which may have taken effect",
	}
	if !viewhook.Enter(view) {
		return nil, no.refused()
	}
	if !leads(l.candidate, view) { // asked only now: from here on the lease is kept
		viewhook.Leave(view)
		return nil, no.refused()
	}
	a := &admitted{ctx, view, func() { viewhook.Leave(view) }, no}
	if l.o.Endless(method) {
		a.ctx, a.view = leaderelection.WithView(ctx, view), undrained{view, func() bool { return l.candidate.Status() == leaderelection.Leading }}
	}
	return a, nil
}

// leads reports whether a candidate leads under view, and does not give that up.
func leads(c leaderelection.Candidate, view *leaderelection.TimeView) bool {
	return c.Status() == leaderelection.Leading && view.ValueInFuture()
}

// undrained is a view for what must not be waited for: it is over when leadership, or the shard, is being
// given up.
type undrained struct {
	viewctx.View
	lasts func() bool // it is not being given up
}

func (u undrained) ValueInFuture() bool { return u.lasts() && u.View.ValueInFuture() }

// unary serves the calls that are exempt or admitted.
func unary(exempt func(string) bool, admit admission) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if exempt(info.FullMethod) {
			res, err := next(ctx, req)
			return res, unmarked(err)
		}
		a, err := admit(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		defer a.leave()
		under := viewctx.New(a.ctx, a.view)
		defer under.Stop()
		res, err := next(under, req)
		if !a.view.ValueInFuture() {
			return nil, a.lost()
		}
		return res, unmarked(err)
	}
}

// streaming is unary for streams.
func streaming(exempt func(string) bool, admit admission) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if exempt(info.FullMethod) {
			return unmarked(next(srv, ss))
		}
		a, err := admit(ss.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		defer a.leave()
		under := viewctx.New(a.ctx, a.view)
		defer under.Stop()
		err = next(srv, &stream{ss, under, a})
		if !a.view.ValueInFuture() {
			return a.lost()
		}
		return unmarked(err)
	}
}

// refused returns the status of a call that nobody has worked on.
func (r *refuser) refused() error { return r.refusal(codes.FailedPrecondition, reasonNot, r.not) }

// lost returns the status of a call during which the view has ended.
func (r *refuser) lost() error { return r.refusal(codes.Unavailable, reasonLost, r.ceased) }

func (r *refuser) refusal(code codes.Code, reason, why string) error {
	info := &errdetails.ErrorInfo{Domain: domain, Reason: reason, Metadata: map[string]string{}}
	if r.election != "" {
		info.Metadata[keyElection] = r.election
	}
	st := status.New(code, why)
	if with, err := st.WithDetails(info); err == nil { // it fails on text that is not UTF-8
		st = with
	}
	return st.Err()
}

// stream sends only while the view lasts.
type stream struct {
	grpc.ServerStream
	under context.Context
	*admitted
}

func (s *stream) Context() context.Context { return s.under }

// SendMsg also returns when the view ends. The stream's own SendMsg would wait for a client that does not
// read, and the campaign for the handler.
func (s *stream) SendMsg(m any) error {
	if !s.view.ValueInFuture() {
		return s.lost()
	}
	return s.within(func() error { return s.ServerStream.SendMsg(m) })
}

func (s *stream) SendHeader(md metadata.MD) error {
	if !s.view.ValueInFuture() {
		return s.lost()
	}
	return s.ServerStream.SendHeader(md)
}

// RecvMsg also returns when the view ends. The stream's own RecvMsg would wait for the client.
func (s *stream) RecvMsg(m any) error {
	err := s.within(func() error { return s.ServerStream.RecvMsg(m) })
	if !s.view.ValueInFuture() {
		return s.lost()
	}
	return err
}

// within makes a call of the stream, and waits for it until the view has ended. If it has, the call returns
// when the handler has returned. Until then it uses its message, which the handler must leave alone.
func (s *stream) within(call func() error) error {
	result := make(chan error, 1)
	go func() { result <- call() }()
	select {
	case err := <-result:
		return err
	case <-s.under.Done():
		if s.ServerStream.Context().Err() != nil {
			return <-result // the call itself has ended
		}
		return s.lost()
	}
}

// Health is a gRPC health service for a process whose services must be used only while it leads. It
// reports SERVING while the view lasts and leadership is not being given up, and otherwise
// NOT_SERVING. Register it with healthpb.RegisterHealthServer(server, health). As a readiness
// probe it stalls rollouts with maxUnavailable: 0: see package lehttp, Readiness.
type Health struct {
	healthpb.UnimplementedHealthServer
	candidate leaderelection.Candidate
	services  []string
}

var _ healthpb.HealthServer = (*Health)(nil)

// NewHealth returns a Health for the services with the given full names. The name "", which means
// the whole process, is always included.
func NewHealth(c leaderelection.Candidate, services ...string) *Health {
	return &Health{candidate: c, services: slices.Concat(services, []string{""})}
}

func (h *Health) now() healthpb.HealthCheckResponse_ServingStatus {
	if leads(h.candidate, h.candidate.View()) {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// Check reports whether this process leads now.
func (h *Health) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if !slices.Contains(h.services, r.GetService()) {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", r.GetService())
	}
	return &healthpb.HealthCheckResponse{Status: h.now()}, nil
}

// List reports for every service whether this process leads now.
func (h *Health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	all := map[string]*healthpb.HealthCheckResponse{}
	for _, name := range h.services {
		all[name] = &healthpb.HealthCheckResponse{Status: h.now()}
	}
	return &healthpb.HealthListResponse{Statuses: all}, nil
}

// followEvery is how often a Watch looks at the view, which sends no news.
const followEvery = 50 * time.Millisecond

// Watch sends the current state, and then each change within 50 ms.
func (h *Health) Watch(r *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	look := h.now
	if !slices.Contains(h.services, r.GetService()) {
		look = func() healthpb.HealthCheckResponse_ServingStatus {
			return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
	}
	clock := h.candidate.View().Clock()
	last := healthpb.HealthCheckResponse_UNKNOWN
	for {
		if now := look(); now != last {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		if !clock.SleepFor(stream.Context(), followEvery) {
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}
