package legrpc

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/viewctx"
)

// Leadership says by which view this process may act. A
// *leaderelection.Campaign is one.
//
// Where it also has the Campaign's Status method, no new calls are served once
// leadership is being given up, so that those under way end while the lease is
// still kept; where it has Leader, refusals name the leader.
type Leadership interface {
	// View is the view of the present leadership; never nil.
	View() *leaderelection.TimeView
}

// The optional parts of a Campaign.
type (
	withStatus interface{ Status() leaderelection.Status }
	withLeader interface {
		Leader() leaderelection.RaceEntry
	}
)

// ServerOptions are for [UnaryServerInterceptor] and [StreamServerInterceptor].
// The zero value is right for most.
type ServerOptions struct {
	// Exempt says which methods ("/package.Service/Method") are served whether
	// this process leads or not. Nil: those of grpc.health and grpc.reflection.
	Exempt func(fullMethod string) bool
	// Election names the election, as ClientOptions.Election does: a client goes by
	// the refusals of its own election alone. Name it if calls pass through services
	// of several elections.
	Election string
	// NameLeader lets refusals say who leads, and where: for callers that may know
	// the candidates' names and addresses.
	NameLeader bool
}

// Refusal is what a server behind the interceptors says of itself. It is in the
// details of the status, as a google.rpc.ErrorInfo.
type Refusal struct {
	// Processed: the call had reached its handler, and may have taken effect.
	// Otherwise it has not, and may be sent elsewhere.
	Processed bool
	// Election is ServerOptions.Election.
	Election string
	// Leader, Addresses and Number are of the leader that the server knows of;
	// empty where it knows none but itself, or does not name it (see
	// ServerOptions.NameLeader).
	Leader    string
	Addresses []string
	Number    leaderelection.ElectionNumber
}

// What the ErrorInfo says.
const (
	domain       = "leaderelection"
	reasonNot    = "NOT_LEADER"
	reasonLost   = "LEADERSHIP_LOST"
	keyLeader    = "leader"
	keyAddresses = "addresses"
	keyNumber    = "election_number"
	keyElection  = "election"
)

// RefusalOf returns what a server's refusal says, and whether err is one. Err may
// wrap the status error that a call returned.
func RefusalOf(err error) (Refusal, bool) {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return Refusal{}, false
	}
	for _, d := range s.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || !isMark(info) {
			continue
		}
		r := Refusal{Processed: info.Reason == reasonLost, Election: info.Metadata[keyElection], Leader: info.Metadata[keyLeader]}
		if a := info.Metadata[keyAddresses]; a != "" {
			r.Addresses = strings.Split(a, ",")
		}
		if n, err := strconv.ParseUint(info.Metadata[keyNumber], 10, 64); err == nil {
			r.Number = leaderelection.ElectionNumber(n)
		}
		return r, true
	}
	return Refusal{}, false
}

// isMark reports whether info marks a refusal.
func isMark(info *errdetails.ErrorInfo) bool {
	return info.Domain == domain && (info.Reason == reasonNot || info.Reason == reasonLost)
}

// unmarked returns a handler's error without the mark of a refusal that the handler
// has relayed from elsewhere: it would say that nobody has worked on this call.
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

// server is what both interceptors have in common.
type server struct {
	leads      Leadership
	status     withStatus
	leader     withLeader
	exempt     func(string) bool
	election   string
	nameLeader bool
	not        string // why a call is refused
	ceased     string // why its answer was thrown away
}

// Why calls are not served, as clients are told.
const (
	notLeader    = "leaderelection: this process does not lead"
	ceasedToLead = "leaderelection: this process has ceased to lead during the call, which may have taken effect"
	notOwner     = "leaderelection: this process does not own the shard"
	ceasedToOwn  = "leaderelection: this process has ceased to own the shard during the call, which may have taken effect"
)

func newServer(l Leadership, o *ServerOptions) *server {
	s := &server{leads: l, exempt: alwaysServed, not: notLeader, ceased: ceasedToLead}
	if o != nil {
		s.election, s.nameLeader = o.Election, o.NameLeader
		if o.Exempt != nil {
			s.exempt = o.Exempt
		}
	}
	s.status, _ = l.(withStatus)
	s.leader, _ = l.(withLeader)
	return s
}

func alwaysServed(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}

// UnaryServerInterceptor serves calls only while this process leads. By its view
// it is asked before the handler is called: where it does not lead, the call is
// refused with FailedPrecondition (see [RefusalOf]). It is asked again when the handler has returned: where the view
// has ended meanwhile, also where another leadership of the same process has begun,
// its answer is thrown away and the call ends with Unavailable, since it may have
// taken effect. The handler's ctx ends with the view, at most a second later, with the
// cause leaderelection.ErrExpired.
func UnaryServerInterceptor(l Leadership, o *ServerOptions) grpc.UnaryServerInterceptor {
	s := newServer(l, o)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if s.exempt(info.FullMethod) {
			res, err := next(ctx, req)
			return res, unmarked(err)
		}
		view := l.View()
		if !s.admits(view) {
			return nil, s.refusal(codes.FailedPrecondition, reasonNot)
		}
		leading := viewctx.New(ctx, view)
		defer leading.Stop()
		res, err := next(leading, req)
		if !view.ValueInFuture() {
			return nil, s.lost()
		}
		return res, unmarked(err)
	}
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams: nothing more is
// sent once the view has ended, and the stream's ctx is cancelled within a second
// of it, with the cause leaderelection.ErrExpired, so that no stream idles at a
// process that does not lead.
func StreamServerInterceptor(l Leadership, o *ServerOptions) grpc.StreamServerInterceptor {
	s := newServer(l, o)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if s.exempt(info.FullMethod) {
			return unmarked(next(srv, ss))
		}
		view := l.View()
		if !s.admits(view) {
			return s.refusal(codes.FailedPrecondition, reasonNot)
		}
		ctx := viewctx.New(ss.Context(), view)
		defer ctx.Stop()
		err := next(srv, &stream{ServerStream: ss, ctx: ctx, view: view, server: s})
		if !view.ValueInFuture() {
			return s.lost()
		}
		return unmarked(err)
	}
}

// admits reports whether a call may be served under view.
func (s *server) admits(view *leaderelection.TimeView) bool {
	return view.ValueInFuture() && (s.status == nil || s.status.Status() == leaderelection.Leading)
}

// lost answers a call whose view has ended under it.
func (s *server) lost() error { return s.refusal(codes.Unavailable, reasonLost) }

// refusal is the status of a call that is not served.
func (s *server) refusal(code codes.Code, reason string) error {
	why := s.not
	if reason == reasonLost {
		why = s.ceased
	}
	info := &errdetails.ErrorInfo{Domain: domain, Reason: reason, Metadata: map[string]string{}}
	if s.election != "" {
		info.Metadata[keyElection] = s.election
	}
	if s.leader != nil && s.nameLeader {
		if e := s.leader.Leader(); !e.Vacant() && e.ElectionNumber != s.leads.View().ElectionNumber() {
			info.Metadata[keyLeader] = e.LeaderID
			info.Metadata[keyAddresses] = strings.Join(e.HostPort, ",")
			info.Metadata[keyNumber] = strconv.FormatUint(uint64(e.ElectionNumber), 10)
			why += "; the leader is " + strconv.Quote(e.LeaderID) + " at " + strings.Join(e.HostPort, ", ")
		}
	}
	st := status.New(code, strings.ToValidUTF8(why, "?"))
	if with, err := st.WithDetails(info); err == nil { // it fails on text that is not UTF-8
		st = with
	}
	return st.Err()
}

// stream sends only while the view lasts.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	view   viewctx.View
	server *server
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SendMsg(m any) error {
	if !s.view.ValueInFuture() {
		return s.server.lost()
	}
	return s.ServerStream.SendMsg(m)
}

func (s *stream) SendHeader(md metadata.MD) error {
	if !s.view.ValueInFuture() {
		return s.server.lost()
	}
	return s.ServerStream.SendHeader(md)
}

// RecvMsg also ends when the view does: the stream's own would wait for the
// client. That one ends when the handler returns; m is not the handler's any more.
func (s *stream) RecvMsg(m any) error {
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-received:
		if !s.view.ValueInFuture() {
			return s.server.lost()
		}
		return err
	case <-s.ctx.Done():
		if s.ServerStream.Context().Err() != nil {
			return <-received // the call itself has ended
		}
		return s.server.lost()
	}
}
