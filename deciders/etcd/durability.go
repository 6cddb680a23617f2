package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/voters"
)

var _ durability.Examiner = (*Decider)(nil)

// cluster is what Durability needs of *clientv3.Client beyond client.
type cluster interface {
	MemberList(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.MemberListResponse, error)
	AlarmList(ctx context.Context) (*clientv3.AlarmResponse, error)
}

// Durability implements durability.Examiner. It asks the cluster for its members and its alarms. It
// cannot see --unsafe-no-fsync. From etcd 3.7 it needs no more than Permissions. If the server
// refuses, the error says so.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	const doing = "examining the cluster of"
	if err := d.election.Ready(ctx); err != nil {
		return nil, d.election.Failed(ctx, doing, err)
	}
	defer d.b.hasten(ctx)()
	var all []durability.Warning
	members, membersErr := d.b.client.MemberList(ctx)
	if membersErr == nil && len(members.Members) == 0 {
		membersErr = errNotEtcd
	}
	if membersErr == nil {
		all = examineMembers(members.Members)
	}
	alarms, alarmsErr := d.b.client.AlarmList(ctx)
	if alarmsErr == nil {
		all = append(all, examineAlarms(alarms.Alarms)...)
	}
	if err := errors.Join(unknown("members", "member list", membersErr), unknown("alarms", "alarm list", alarmsErr)); err != nil {
		return all, d.election.Failed(ctx, doing, err)
	}
	return all, nil
}

// unknown says what is not known for err. A refusal is none of the key's permissions,
// so it loses its kind, and with it the advice on these.
func unknown(what, ask string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("its %s are not known: this user may not ask (%v); as root, see etcdctl %s", what, err, ask)
	}
	return fmt.Errorf("its %s are not known: %w", what, err)
}

// examineMembers says what the number of voters means. A learner has no vote.
func examineMembers(members []*etcdserverpb.Member) (all []durability.Warning) {
	voting, idle := 0, ""
	for _, m := range members {
		if m.IsLearner {
			continue
		}
		voting++
		if m.Name == "" { // it tells its name when it starts
			idle = fmt.Sprintf("%x", m.ID)
		}
	}
	all = voters.Examine(voting, "the cluster has one voting member"+learners(len(members)-voting), "the cluster has %d voting members")
	if idle != "" {
		all = append(all, durability.Warning{
			Detail: fmt.Sprintf("member %s was added and has never started: it counts for the majority all the same", idle),
			Advice: "start it, or remove it (etcdctl member remove)",
		})
	}
	return all
}

func learners(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d learning", n)
}

// examineAlarms says what each alarm means.
func examineAlarms(alarms []*etcdserverpb.AlarmMember) (all []durability.Warning) {
	for _, a := range alarms {
		w := durability.Warning{
			Detail: fmt.Sprintf("member %x has raised the alarm %v", a.MemberID, a.Alarm),
			Advice: "see etcdctl alarm list",
		}
		switch a.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			w.Detail += ": its database is full, and etcd takes no writes, so that nobody can lead"
			w.Advice = noSpace
		case etcdserverpb.AlarmType_CORRUPT:
			w.Detail += ": its data differ from the others', so that two may lead, and etcd takes no requests"
			w.Advice = "remove that member, delete its data and add it again; then etcdctl alarm disarm"
		}
		all = append(all, w)
	}
	return all
}
