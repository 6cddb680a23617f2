package etcd_test

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// intercepted returns an election of a client whose calls go through these.
func intercepted(t *testing.T, endpoint string, by grpc.UnaryClientInterceptor) *etcd.Decider {
	t.Helper()
	c := clientOf(t, clientv3.Config{Endpoints: []string{endpoint}, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(by)}})
	return etcd.NewDecider(c, "k", nil)
}

// A cluster that bears the loss of a member is not warned of.
func TestDurability(t *testing.T) {
	feedtest.Examines(t, etcd.NewDecider(client(t, stores.EtcdCluster(t, 3)[0].Endpoint), "k", nil))
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
			d := intercepted(t, endpoint, func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
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
		feedtest.Warns(t, w[:1], "one voting member", "run three members")
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
			d := intercepted(t, server.Endpoint, func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
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
