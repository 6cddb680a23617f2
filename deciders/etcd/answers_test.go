package etcd_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// An answer that says nothing, as a proxy or a mock gives it, is neither a success, nor a
// lost race, nor an empty election.
func TestAnswersThatSayNothing(t *testing.T) {
	endpoint := stores.Etcd(t).Endpoint
	d := etcd.NewDecider(client(t, endpoint), "k", nil)
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
		sink := etcd.NewDecider(clientOf(t, clientv3.Config{Endpoints: []string{endpoint}, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(nothing)}}), "k", nil)
		t.Run(name, func(t *testing.T) {
			e, err := sink.ReadCurrent(t.Context())
			feedtest.Passing(t, err, "proxy", "reading", d.Place())
			if e != nil {
				t.Errorf("ReadCurrent: %+v", e)
			}
			feedtest.Passing(t, feedtest.WriteError(t, sink, 2, token), "proxy", "writing", d.Place())
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
	feedtest.Write(t, etcd.NewDecider(client(t, endpoint), "k", nil), 1, nil)
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
