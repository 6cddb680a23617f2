package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// messages counts what a gRPC client sends, in single calls and on streams.
type messages struct{ s seat }

func (messages) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (messages) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (messages) HandleConn(context.Context, stats.ConnStats)                       {}
func (m messages) HandleRPC(_ context.Context, r stats.RPCStats) {
	if _, sent := r.(*stats.OutPayload); sent {
		m.s.Ops.Add(1)
	}
}

func etcdClient(s seat) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{s.Addr},
		DialTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithStatsHandler(messages{s})},
		Logger:      zap.NewNop(),
	})
}

// etcdElection contests as the package's example does: a session, Campaign, and a leader that
// watches the session.
func etcdElection(ctx context.Context, s seat, lead func()) error {
	client, err := etcdClient(s)
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(s.Term/time.Second)))
	if err != nil {
		return err
	}
	defer session.Close()
	election := concurrency.NewElection(session, s.Key)
	if err := election.Campaign(ctx, s.ID); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	lead()
	select {
	case <-session.Done():
		return nil
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), s.Term)
	defer cancel()
	return election.Resign(last)
}
