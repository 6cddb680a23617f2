package frometcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
)

// After runs work whenever host leads.
func After(ctx context.Context, client *clientv3.Client, host string, work func(context.Context, *leaderelection.TimeView)) error {
	return leaderelection.Config{
		Decider:    etcd.NewDecider(client, "elections/report", nil),
		LeaderID:   host,
		TermLength: 15 * time.Second,
		OnElected:  work,
	}.Acquire(ctx)
}
