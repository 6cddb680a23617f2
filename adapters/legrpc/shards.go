package legrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
	"github.com/c8e606e4/leaderelection/shard"
)

// ShardKey is the metadata key of the shard's name, which a [ShardConn] sends with each call.
const ShardKey = "leaderelection-shard"

// owner has the calls that the ownership of their shards admits.
type owner struct {
	owners shard.Owners
	o      ServerOptions
}

// admit is the admission of calls to a shard's owner. The shard is kept for the call until it leaves.
func (w *owner) admit(ctx context.Context, method string) (*admitted, error) {
	names := metadata.ValueFromIncomingContext(ctx, ShardKey)
	if len(names) != 1 || names[0] == "" {
		return nil, status.Error(codes.InvalidArgument, "leaderelection: the call names no shard")
	}
	no := refuser{
		route.ShardElection(w.o.Election, names[0]), "leaderelection: this process does not own the shard",
		"leaderelection: this process has ceased to own the shard during the call, which may have taken effect",
	}
	o, may := w.owners.Shard(names[0])
	if !may || !viewhook.EnterShard(o) {
		return nil, no.refused()
	}
	a := &admitted{shard.WithOwned(ctx, o), o, func() { viewhook.LeaveShard(o) }, no}
	if w.o.Endless(method) {
		a.view = undrained{o, func() bool { return o.Context().Err() == nil }}
	}
	return a, nil
}

// UnaryOwnerInterceptor serves a call only while this process owns the call's shard. Use it at
// every member. It is [UnaryServerInterceptor] for shards, with the same promise. When a shard must
// be let go, it serves no new calls for that shard. The shard is kept until the handlers of the calls
// under way, and OnOwned, have returned, for at most DrainTimeout. The call's shard is the one that its
// client has named (see [ShardConn]): the handler must check that the request belongs to it. A call that
// names no shard ends with InvalidArgument.
func UnaryOwnerInterceptor(owners shard.Owners, opts *ServerOptions) grpc.UnaryServerInterceptor {
	w := &owner{owners, opts.settled()}
	return unary(w.o.Exempt, w.admit)
}

// StreamOwnerInterceptor is [UnaryOwnerInterceptor] for streams. Once this process no longer owns
// the shard, nothing more is sent. The stream's ctx is cancelled within a second of that, with the
// cause leaderelection.ErrNotLeading. Streams that last until somebody ends them keep a shard that
// must be let go for DrainTimeout: see ServerOptions.Endless.
func StreamOwnerInterceptor(owners shard.Owners, opts *ServerOptions) grpc.StreamServerInterceptor {
	w := &owner{owners, opts.settled()}
	return streaming(w.o.Exempt, w.admit)
}

// authority is the :authority of calls to members, unless grpc.WithAuthority says otherwise.
const authority = "shards"

type shardKey struct{}

// WithShard returns a ctx for calls by a [ShardConn] to the shard with the given name. For a key of n
// numbered shards the name is shard.KeyName(key, n).
func WithShard(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, shardKey{}, name)
}

// ShardOptions are the settings of [FollowShards]. Set Dial; the zero value of the rest is right
// for most.
type ShardOptions struct {
	// Election is the ServerOptions.Election of the servers.
	Election string
	// Wait is how long a call may wait until its shard has an owner. It is also how long after
	// the first refusal a call may be sent again. Both last at most until the call's ctx ends.
	// Zero means until the call's ctx ends. Negative means that calls do not wait, and are not sent
	// again.
	Wait time.Duration
	// CheckAddress returns an error for an address to which no call may be sent: see
	// [BuilderOptions]. Nil means that link-local, multicast and unspecified addresses are
	// refused.
	CheckAddress func(hostPort string) error
	// Dial has the options of each channel to a member: at least the credentials. The :authority
	// of calls is "shards" unless grpc.WithAuthority says otherwise. With TLS it is the name that
	// each member's certificate must have.
	Dial []grpc.DialOption
}

// ShardConn is a grpc.ClientConnInterface whose calls go to the owners of their shards. Pass it to
// generated clients in place of a channel. It is made by [FollowShards]. Its methods may be
// called concurrently.
type ShardConn struct {
	o      ShardOptions
	shards *route.Shards
	stop   func() // ends shards' watch
	mu     sync.Mutex
	conns  map[string]*grpc.ClientConn // by addresses
	closed bool
}

var _ grpc.ClientConnInterface = (*ShardConn)(nil)

// FollowShards returns a ShardConn that watches a group until Close. It returns at once, and fails
// only if the WatchConfig or the options are wrong.
//
// A call goes to the owner of its shard, by the newest assignment known. The shard's name goes
// along as metadata. If the owner refuses the call before anybody has worked on it, since the shard
// is moving, the call is sent again to the next owner, once that is known. A call under way ends
// with Unavailable if another owner has been known for a second, or the shard is gone for as long:
// the call may have taken effect.
//
// While nobody owns the shard, a call waits until its ctx ends. ShardOptions.Wait can shorten that, but
// not for calls that are wait-for-ready. A call without [WithShard] ends with InvalidArgument. If the
// group does not have the shard, or no longer has it, the call ends with NotFound, even if it waits.
func FollowShards(w shard.WatchConfig, opts *ShardOptions) (*ShardConn, error) {
	s := &ShardConn{o: route.Or(opts), conns: map[string]*grpc.ClientConn{}}
	if s.o.CheckAddress == nil {
		s.o.CheckAddress = route.CheckAddress
	}
	// A wrong option, such as missing credentials, is reported here and not by the first call.
	probe, err := grpc.NewClient("passthrough:///"+authority, s.o.Dial...)
	if err != nil {
		return nil, fmt.Errorf("legrpc: ShardOptions.Dial: %w", err)
	}
	_ = probe.Close() // it has not connected
	s.shards, s.stop, err = route.FollowShards(w)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Assignment returns the newest assignment known, or nil. Its Of is the number for shard.KeyName.
func (s *ShardConn) Assignment() *shard.Assignment { return s.shards.Newest() }

// Close ends the watch and closes the channels. Call it when the ShardConn is not used any more.
func (s *ShardConn) Close() error {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var faults []error
	for _, conn := range s.conns {
		faults = append(faults, conn.Close())
	}
	clear(s.conns)
	return errors.Join(faults...)
}

// Invoke implements grpc.ClientConnInterface.
func (s *ShardConn) Invoke(ctx context.Context, method string, args, reply any, o ...grpc.CallOption) error {
	ctx, name, c, err := s.call(ctx)
	if err != nil {
		return err
	}
	return c.unary(ctx, method, args, reply, nil, func(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, o ...grpc.CallOption) error {
		a, err := s.attempt(ctx, name, o)
		if err != nil {
			return err
		}
		defer a.over()
		return a.result(a.conn.Invoke(a.ctx, method, req, reply, o...))
	}, o...)
}

// NewStream implements grpc.ClientConnInterface.
func (s *ShardConn) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, o ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, name, c, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	return c.stream(ctx, d, nil, method, func(ctx context.Context, d *grpc.StreamDesc, _ *grpc.ClientConn, method string, o ...grpc.CallOption) (grpc.ClientStream, error) {
		a, err := s.attempt(ctx, name, o)
		if err != nil {
			return nil, err
		}
		// The attempt is over when the stream is, at the latest when the stream's ctx ends.
		stream, err := a.conn.NewStream(a.ctx, d, method, o...)
		if err != nil {
			a.over()
			return nil, a.result(err)
		}
		context.AfterFunc(stream.Context(), a.over)
		return &shardStream{stream, a}, nil
	}, o...)
}

// call returns what all attempts of one call share: its ctx, the shard's name and the client.
func (s *ShardConn) call(ctx context.Context) (context.Context, string, *client, error) {
	name, _ := ctx.Value(shardKey{}).(string)
	if name == "" {
		return nil, "", nil, status.Error(codes.InvalidArgument, "legrpc: the call's ctx names no shard: see WithShard")
	}
	ctx = metadata.AppendToOutgoingContext(ctx, ShardKey, name)
	return ctx, name, newClient(&ClientOptions{Election: route.ShardElection(s.o.Election, name), Wait: s.o.Wait}, nil), nil
}

// attempt is one attempt of a call, at one owner.
type attempt struct {
	conn   *grpc.ClientConn
	ctx    context.Context // ends when another owner has been known, or the shard gone, for a while
	cancel context.CancelCauseFunc
	stop   func()
	once   sync.Once
}

// errOvertaken is the reason to give up an attempt.
var errOvertaken = errors.New("legrpc: the shard has another owner by now, or is gone, and the one that was asked has not answered; the call may have taken effect")

func (a *attempt) over() {
	a.once.Do(func() {
		a.stop()
		a.cancel(nil)
	})
}

// result returns err as the caller gets it.
func (a *attempt) result(err error) error {
	if err != nil && context.Cause(a.ctx) == errOvertaken {
		return status.Error(codes.Unavailable, errOvertaken.Error())
	}
	return err
}

// attempt finds the owner of a shard, and the channel to it.
func (s *ShardConn) attempt(ctx context.Context, name string, o []grpc.CallOption) (*attempt, error) {
	wait := s.o.Wait
	for _, option := range o {
		if f, is := option.(grpc.FailFastCallOption); is && !f.FailFast {
			wait = 0
		}
	}
	if wait == 0 {
		wait = time.Hour * 24 * 365 // until ctx ends
	}
	begun := time.Now()
	table, err := s.shards.Table(ctx, name, wait)
	switch {
	case errors.Is(err, route.ErrNoShard):
		return nil, noShard(name)
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "legrpc: shard %q: %v", name, err)
	}
	for {
		now := table.Load()
		if now.Led() {
			conn, err := s.conn(now)
			if err != nil {
				return nil, status.Errorf(codes.Unavailable, "legrpc: shard %q: %v", name, err)
			}
			led, cancel := context.WithCancelCause(ctx)
			a := &attempt{conn: conn, ctx: led, cancel: cancel}
			a.stop = now.Overdue(grace, func() { a.cancel(errOvertaken) })
			return a, nil
		}
		if now.Removed() {
			return nil, noShard(name)
		}
		timer := time.NewTimer(max(0, wait-time.Since(begun)))
		select {
		case <-now.Changed():
			timer.Stop()
		case <-timer.C:
			return nil, status.Errorf(codes.Unavailable, "legrpc: nobody owns shard %q", name)
		case <-ctx.Done():
			timer.Stop()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// noShard returns the error of a call to a shard that the group does not have, or no longer has.
func noShard(name string) error {
	return status.Errorf(codes.NotFound, "legrpc: shard %q: %v", name, route.ErrNoShard)
}

// conn returns the channel to the owner of a shard. Members are few, and each has one.
func (s *ShardConn) conn(owner *route.State) (*grpc.ClientConn, error) {
	allowed, fault := route.Addresses(&owner.Entry, nil, s.o.CheckAddress)
	if len(allowed) == 0 {
		return nil, fmt.Errorf("member %q cannot be reached: %w", owner.Entry.LeaderID, fault)
	}
	key := fmt.Sprint(allowed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the ShardConn is closed")
	}
	if conn := s.conns[key]; conn != nil {
		return conn, nil
	}
	s.prune(key)
	var at resolver.State
	for _, address := range allowed {
		at.Addresses = append(at.Addresses, resolver.Address{Addr: address})
	}
	member := manual.NewBuilderWithScheme("leaderelection-member")
	member.InitialState(at)
	conn, err := grpc.NewClient(member.Scheme()+":///"+authority, append([]grpc.DialOption{grpc.WithResolvers(member)}, s.o.Dial...)...)
	if err == nil {
		s.conns[key] = conn
	}
	return conn, err
}

// prune closes the channels to members that are gone: other members own their shards by now. It
// keeps key, whose channel is about to be made. The caller holds s.mu.
func (s *ShardConn) prune(key string) {
	there := map[string]bool{key: true}
	for _, m := range s.shards.Newest().Members() {
		allowed, _ := route.Addresses(&leaderelection.RaceEntry{HostPort: m.HostPort}, nil, s.o.CheckAddress)
		there[fmt.Sprint(allowed)] = true
	}
	for k, conn := range s.conns {
		if !there[k] {
			_ = conn.Close()
			delete(s.conns, k)
		}
	}
}

// shardStream reports why a stream was given up.
type shardStream struct {
	grpc.ClientStream
	a *attempt
}

func (s *shardStream) RecvMsg(m any) error { return s.a.result(s.ClientStream.RecvMsg(m)) }
