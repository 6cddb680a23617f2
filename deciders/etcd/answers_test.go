package etcd_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// What etcd says no with for a while may pass.
func TestRefusalsThatMayPass(t *testing.T) {
	for code, text := range map[codes.Code]string{codes.Unavailable: "etcdserver: no leader", codes.ResourceExhausted: "etcdserver: too many requests"} {
		d := intercepted(t, "127.0.0.1:1", "k", func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return status.Error(code, text)
		})
		feedtest.Passing(t, feedtest.WriteError(t, d, 1, nil), text, `"k"`)
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

// What the members and the alarms of a cluster mean is warned of. What the server refuses to tell, or
// does not tell, is said, and what it does tell is examined.
func TestDurabilityOfAnswers(t *testing.T) {
	server := stores.Etcd(t)
	up, idle, learner := &etcdserverpb.Member{Name: "m"}, &etcdserverpb.Member{ID: 0xabc}, &etcdserverpb.Member{IsLearner: true}
	members := func(all ...*etcdserverpb.Member) func(any) error {
		return func(reply any) error { reply.(*etcdserverpb.MemberListResponse).Members = all; return nil }
	}
	alarm := func(kind etcdserverpb.AlarmType) func(any) error {
		return func(reply any) error {
			reply.(*etcdserverpb.AlarmResponse).Alarms = []*etcdserverpb.AlarmMember{{MemberID: 0xabc, Alarm: kind}}
			return nil
		}
	}
	refused := func(any) error { return rpctypes.ErrGRPCPermissionDenied }
	for name, c := range map[string]struct {
		members, alarms func(reply any) error
		warned, said    []string
	}{
		"one":                 {members(up), nil, []string{"one voting member: its disk is the only one", "run three"}, nil},
		"one and a learner":   {members(up, learner), nil, []string{"one voting member and 1 learning: its disk"}, nil},
		"two":                 {members(up, up), nil, []string{"2 voting members", "survive the loss of 0, no more than 1 would", "run 1 or 3"}, nil},
		"three":               {members(up, up, up), nil, nil, nil},
		"three and a learner": {members(up, up, up, learner), nil, nil, nil},
		"four":                {members(up, up, up, up), nil, []string{"4 voting members", "survive the loss of 1, no more than 3 would", "run 3 or 5"}, nil},
		"one not started":     {members(up, up, idle), nil, []string{"member abc", "never started", "member remove"}, nil},
		"full":                {members(up, up, up), alarm(etcdserverpb.AlarmType_NOSPACE), []string{"abc", "NOSPACE", "nobody can lead", "compact", "alarm disarm"}, nil},
		"corrupt":             {members(up, up, up), alarm(etcdserverpb.AlarmType_CORRUPT), []string{"abc", "CORRUPT", "two may lead", "remove that member"}, nil},
		"alarms refused":      {nil, refused, []string{"one voting member"}, []string{`"k"`, "alarms are not known", "may not ask", "etcdctl alarm list"}},
		"members refused":     {refused, nil, nil, []string{`"k"`, "members are not known", "may not ask", "etcdctl member list"}},
		"no members at all":   {members(), nil, nil, []string{"members are not known", "proxy"}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]func(any) error{etcdserverpb.Cluster_MemberList_FullMethodName: c.members, etcdserverpb.Maintenance_Alarm_FullMethodName: c.alarms}
			d := intercepted(t, server.Endpoint, "k", func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if answer := answers[method]; answer != nil {
					return answer(out)
				}
				return invoke(ctx, method, in, out, conn, opts...)
			})
			w, err := d.Durability(t.Context())
			if feedtest.Warns(t, w, c.warned...); c.said == nil && err != nil {
				t.Error(err)
			} else if c.said != nil {
				feedtest.Passing(t, err, c.said...)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := decider(t, server.Endpoint).Durability(ended)
	feedtest.Says(t, err, "examining the cluster of", `"k"`)
}
