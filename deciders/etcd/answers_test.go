package etcd_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// The store is measured as it is in use: it waits for its disk.
func TestHandover(t *testing.T) {
	stores.Nightly(t, "it measures hand-overs")
	feedtest.Handover(t, ec.Elections(stores.Etcd(t, "-fsync").Endpoint))
}

func TestIdle(t *testing.T) {
	stores.Nightly(t, "it counts requests for ten terms")
	server := stores.Etcd(t)
	feedtest.Idle(t, ec.Elections(server.Endpoint), func() int { return server.Requests(t) })
}

func TestNews(t *testing.T) { ec.News(t, nil) }

// Open's keep-alives notice within 13 s that nothing comes through any more.
func TestHungConnectionIsNoticed(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	proxy := stores.NewRelay(t, stores.Etcd(t).Endpoint)
	victim := ec.Opened(t, "etcd://"+proxy.Addr+"/k")
	feed := feedtest.Follow(t, victim)
	if n := feedtest.Next(t, feed); n.Err != nil {
		t.Fatal(n.Err)
	}
	begin := time.Now()
	proxy.Cut()
	if n := feedtest.Next(t, feed); n.Err == nil {
		t.Errorf("the feed yields %+v", n)
	}
	took := time.Since(begin)
	t.Logf("noticed after %v", took.Round(time.Millisecond))
	if took > 20*time.Second {
		t.Errorf("noticed after %v", took)
	}
	proxy.Heal()
	feedtest.Read(t, victim)
}

// A feed whose connection was lost for a moment goes on by itself, and has missed
// nothing, even if what it had seen last was compacted meanwhile.
func TestFeedOverCompaction(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	server := stores.Etcd(t)
	c := client(t, server.Endpoint)
	proxy := stores.NewRelay(t, server.Endpoint)
	victim := etcd.NewDecider(client(t, proxy.Addr), "k", &etcd.Options{FeedGrace: time.Minute})
	writer := etcd.NewDecider(c, "k", nil)
	feed := feedtest.Follow(t, victim)
	feedtest.Next(t, feed)
	token := feedtest.Write(t, writer, 1, nil)
	feedtest.Number(t, feed, 1)
	for last := uint64(11); last <= 31; last += 10 {
		proxy.Refuse()
		for number := last - 9; number <= last; number++ {
			token = feedtest.Write(t, writer, number, token)
		}
		at, err := c.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Compact(t.Context(), at.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		proxy.Heal()
		if n := feedtest.Next(t, feed); n.Err != nil || uint64(n.ElectionNumber) != last {
			t.Fatalf("after the compaction the feed yields %+v, want %d", n, last)
		}
	}
	// A token read again after the compaction is as good as any.
	feedtest.Write(t, writer, 40, token)
	feedtest.Number(t, feed, 40)
}

// Of three members the raft leader is killed, and then another one: see storetest.Ensemble. The one
// that is left has no leader, and says so to the feed at once.
func TestCluster(t *testing.T) {
	var servers []storetest.Server
	var addrs []string
	leads := -1
	members := stores.EtcdCluster(t, 3)
	for i, m := range members {
		servers, addrs = append(servers, m), append(addrs, m.Endpoint)
		status, err := client(t, m.Endpoint).Status(t.Context(), m.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			leads = i
		}
	}
	lone := ec.Opened(t, ec.At(members[(leads+1)%3].Endpoint, "e"))
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	said := make(chan error, 100)
	following.Go(func() {
		for ctx.Err() == nil {
			for _, err := range lone.Changes(ctx) {
				if errors.Is(err, rpctypes.ErrNoLeader) {
					said <- err
				}
			}
		}
	})
	defer following.Wait()
	defer cancel()
	ec.Ensemble(t, ec.At(strings.Join(addrs, ","), "e"), 6*time.Second, servers, leads, func() {
		for len(said) > 0 { // when the first one was killed
			<-said
		}
		feedtest.Passing(t, <-said, `"e"`)
	})
}
