package etcd_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// An answer that says nothing, as a proxy or a mock gives it, is neither a success, nor a
// lost race, nor an empty election.
func TestAnswersThatSayNothing(t *testing.T) {
	endpoint := stores.Etcd(t).Endpoint
	d := decider(t, endpoint)
	token := feedtest.Write(t, d, 1, nil)
	for name, say := range map[string]func(txn *etcdserverpb.TxnResponse){
		"nothing": func(*etcdserverpb.TxnResponse) {},
		"success": func(txn *etcdserverpb.TxnResponse) {
			txn.Succeeded, txn.Header = true, &etcdserverpb.ResponseHeader{Revision: 99}
		},
		"success, at an old revision": func(txn *etcdserverpb.TxnResponse) {
			put := &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{}}
			txn.Succeeded, txn.Header, txn.Responses = true, &etcdserverpb.ResponseHeader{Revision: 1}, []*etcdserverpb.ResponseOp{{Response: put}}
		},
		"refused": func(txn *etcdserverpb.TxnResponse) { txn.Header = &etcdserverpb.ResponseHeader{Revision: 99} },
	} {
		nothing := func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			if txn, is := reply.(*etcdserverpb.TxnResponse); is {
				say(txn)
			}
			return nil
		}
		sink := intercepted(t, endpoint, "k", nothing)
		t.Run(name, func(t *testing.T) {
			e, err := sink.ReadCurrent(t.Context())
			feedtest.Passing(t, err, "proxy", "reading", d.String())
			if e != nil {
				t.Errorf("ReadCurrent: %+v", e)
			}
			feedtest.Passing(t, feedtest.WriteError(t, sink, 2, token), "proxy", "writing", d.String())
			feedtest.Passing(t, feedtest.Next(t, feedtest.Follow(t, sink)).Err, "proxy")
		})
	}
}

// compacting is a watch that is refused, whatever it begins at: from it on all is compacted.
type compacting struct {
	grpc.ClientStream
	revision int64
	created  bool
}

func (c *compacting) RecvMsg(m any) error {
	watch, is := m.(*etcdserverpb.WatchResponse)
	if !is || !c.created {
		c.created = is
		return c.ClientStream.RecvMsg(m)
	}
	watch.Header = &etcdserverpb.ResponseHeader{Revision: 1}
	watch.Canceled, watch.CompactRevision = true, c.revision
	return nil
}

// A server that says of each watch that what it begins at is compacted is not asked again and
// again: the feed ends, and the campaign begins the next one after a pause.
func TestCompactedForEver(t *testing.T) {
	stores.Nightly(t, "it waits for the client to give up")
	endpoint := stores.Etcd(t).Endpoint
	feedtest.Write(t, decider(t, endpoint), 1, nil)
	for _, revision := range []int64{1, math.MaxInt64} {
		var watches atomic.Int64
		refuse := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := next(ctx, desc, conn, method, opts...)
			watches.Add(1)
			return &compacting{ClientStream: s, revision: revision}, err
		}
		d := etcd.NewDecider(clientOf(t, clientv3.Config{Endpoints: []string{endpoint}, DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(refuse)}}), "k", nil)
		feed := feedtest.Follow(t, d)
		feedtest.Number(t, feed, 1)
		feedtest.Passing(t, feedtest.Next(t, feed).Err, "compacted", "proxy")
		if n := watches.Load(); n > 2 {
			t.Errorf("%d watches of what is compacted at %d", n, revision)
		}
	}
}

// happening does a call, or not.
type happening func(ctx context.Context, call func() error) error

// faulty is a client to whose calls something happens.
type faulty struct{ happens atomic.Pointer[happening] }

func (f *faulty) between(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := func() error { return invoke(ctx, method, req, reply, cc, opts...) }
	if h := f.happens.Load(); h != nil && method == "/etcdserverpb.KV/Txn" {
		return (*h)(ctx, call)
	}
	return call()
}

// A leader whose writes go wrong, each in the same way for a while, but not for as
// long as its view lasts, keeps its leadership: it never takes its own write for another's.
func TestLeaderKeepsItsLeadership(t *testing.T) {
	stores.Nightly(t, "it waits for the client to give up")
	server := stores.Etcd(t)
	for name, h := range map[string]happening{
		"answers lost": func(_ context.Context, call func() error) error {
			_ = call()
			return status.Error(codes.Unavailable, "the connection was lost")
		},
		"answers after the attempt's time": func(ctx context.Context, call func() error) error {
			err := call()
			<-ctx.Done()
			return fmt.Errorf("%w (%v)", ctx.Err(), err)
		},
		"requests lost": func(ctx context.Context, _ func() error) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"unavailable": func(context.Context, func() error) error {
			return status.Error(codes.Unavailable, "etcdserver: no leader")
		},
		"too many requests": func(context.Context, func() error) error {
			return status.Error(codes.ResourceExhausted, "etcdserver: too many requests")
		},
		"written twice": func(_ context.Context, call func() error) error { // the second one is refused
			_ = call()
			return call()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &faulty{}
			elected := make(chan context.Context, 10)
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			c, err := leaderelection.Config{
				Decider: intercepted(t, server.Endpoint, feedtest.Unique(), f.between), LeaderID: "a", TermLength: 4 * time.Second, ClockPolicy: leaderelection.SharedClock,
				OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { elected <- ctx },
				Trace: &leaderelection.Trace{
					StoreOp: func(op leaderelection.StoreOp) {
						t.Logf("%v: %s took %v: %v", time.Since(began).Round(time.Millisecond), op.Kind, op.Duration, op.Err)
					},
				},
			}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { cancel(); _ = c.Wait() }()
			leadership := <-elected
			view := c.View()
			for range 3 {
				// The extension is due when half of the view is gone. A third of
				// what is then left is trouble.
				before := view.Get()
				f.happens.Store(&h)
				end := time.NewTimer(2600 * time.Millisecond)
				select {
				case <-end.C:
				case <-leadership.Done():
					t.Fatalf("the leadership has ended: %v", context.Cause(leadership))
				}
				f.happens.Store(nil)
				for !view.Get().After(before) {
					select {
					case <-leadership.Done():
						t.Fatalf("the leadership has ended: %v", context.Cause(leadership))
					case <-time.After(5 * time.Millisecond):
					}
				}
			}
			if !view.ValueInFuture() || len(elected) > 0 {
				t.Errorf("the view is over, or there was another leadership (%d)", len(elected))
			}
		})
	}
}

// intercepted returns an election of a client whose calls go through these.
func intercepted(t *testing.T, endpoint, key string, by grpc.UnaryClientInterceptor) *etcd.Decider {
	t.Helper()
	c := clientOf(t, clientv3.Config{Endpoints: []string{endpoint}, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(by)}})
	return etcd.NewDecider(c, key, nil)
}

// A cluster that bears the loss of a member is not warned of.
func TestDurability(t *testing.T) {
	feedtest.Examines(t, decider(t, stores.EtcdCluster(t, 3)[0].Endpoint))
}

// An even number of voters is warned of, and a member that has never started.
func TestDurabilityOfMembers(t *testing.T) {
	stores.Nightly(t, "three processes as members")
	endpoint := stores.Etcd(t).Endpoint
	up, idle, learner := &etcdserverpb.Member{Name: "m"}, &etcdserverpb.Member{ID: 0xabc}, &etcdserverpb.Member{IsLearner: true}
	for name, c := range map[string]struct {
		members []*etcdserverpb.Member
		want    []string
	}{
		"two":                 {[]*etcdserverpb.Member{up, up}, []string{"2 voting members", "survive the loss of 0, no more than 1 would", "run 1 or 3"}},
		"three":               {[]*etcdserverpb.Member{up, up, up}, nil},
		"three and a learner": {[]*etcdserverpb.Member{up, up, up, learner}, nil},
		"four":                {[]*etcdserverpb.Member{up, up, up, up}, []string{"4 voting members", "survive the loss of 1, no more than 3 would", "run 3 or 5"}},
		"one not started":     {[]*etcdserverpb.Member{up, up, idle}, []string{"member abc", "never started", "member remove"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := intercepted(t, endpoint, "k", func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoke(ctx, method, in, out, conn, opts...)
				if list, is := out.(*etcdserverpb.MemberListResponse); is {
					list.Members = c.members
				}
				return err
			})
			feedtest.Examines(t, d, c.want...)
		})
	}
}

// One member is warned of, also beside a learner, and so is each alarm.
func TestDurabilityOfOneMember(t *testing.T) {
	server := stores.Etcd(t)
	c := client(t, server.Endpoint)
	d := etcd.NewDecider(c, "k", nil)
	look := func(words ...string) string {
		t.Helper()
		w, err := d.Durability(t.Context())
		if err != nil || len(w) == 0 {
			t.Fatalf("%v, %v", w, err)
		}
		feedtest.Warns(t, w[:1], "one voting member", "run three")
		feedtest.Warns(t, w[1:], words...)
		return w[0].Detail
	}
	look()

	members, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction, kind etcdserverpb.AlarmType) {
		t.Helper()
		r := &etcdserverpb.AlarmRequest{Action: action, MemberID: members.Members[0].ID, Alarm: kind}
		if _, err := etcdserverpb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for kind, words := range map[etcdserverpb.AlarmType][]string{
		etcdserverpb.AlarmType_NOSPACE: {"NOSPACE", "nobody can lead", "compact", "alarm disarm"},
		etcdserverpb.AlarmType_CORRUPT: {"CORRUPT", "two may lead", "remove that member"},
	} {
		alarm(etcdserverpb.AlarmRequest_ACTIVATE, kind)
		look(words...)
		alarm(etcdserverpb.AlarmRequest_DEACTIVATE, kind)
		look()
	}

	if _, err := c.MemberAddAsLearner(t.Context(), []string{"http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if detail := look(); detail != "the cluster has one voting member and 1 learning: its disk is the only one that has what was confirmed, and nobody can lead while it is away" {
		t.Error(detail)
	}
}

// What the server refuses to tell, or does not tell, is said; what it does tell is examined.
func TestDurabilityRefused(t *testing.T) {
	server := stores.Etcd(t)
	for name, c := range map[string]struct {
		alarms  func(reply any) error
		members func(reply any) error
		warned  []string
		said    []string
	}{
		"alarms": {
			alarms: func(any) error { return rpctypes.ErrGRPCPermissionDenied },
			warned: []string{"one voting member"}, said: []string{`"k"`, "alarms are not known", "may not ask", "etcdctl alarm list"},
		},
		"members": {
			members: func(any) error { return rpctypes.ErrGRPCPermissionDenied },
			said:    []string{`"k"`, "members are not known", "may not ask", "etcdctl member list"},
		},
		"none at all": {
			members: func(reply any) error {
				reply.(*etcdserverpb.MemberListResponse).Members = nil
				return nil
			},
			said: []string{"members are not known", "proxy"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := intercepted(t, server.Endpoint, "k", func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				switch {
				case method == etcdserverpb.Maintenance_Alarm_FullMethodName && c.alarms != nil:
					return c.alarms(out)
				case method == etcdserverpb.Cluster_MemberList_FullMethodName && c.members != nil:
					return c.members(out)
				}
				return invoke(ctx, method, in, out, conn, opts...)
			})
			w, err := d.Durability(t.Context())
			feedtest.Warns(t, w, c.warned...)
			feedtest.Passing(t, err, c.said...)
		})
	}
	server.Stop()
	d := opened(t, "etcd://"+server.Endpoint+"/k")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Durability(ctx)
	feedtest.Says(t, err, "examining the cluster of", `"k"`)
}
