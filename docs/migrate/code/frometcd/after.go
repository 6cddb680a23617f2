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
		Decider:      etcd.NewDecider(client, "elections/report", nil),
		LeaderID:     host,
		TermLength:   15 * time.Second,
		MaxClockSkew: time.Second,
		OnElected:    work,
	}.Acquire(ctx)
}

// AfterObserve tells of each leader: the new Observe, and the new Leader.
func AfterObserve(ctx context.Context, client *clientv3.Client, leader func(id string)) error {
	return leaderelection.WatchConfig{
		Decider:      etcd.NewDecider(client, "elections/report", nil),
		MaxClockSkew: time.Second,
		Lapsed:       func(context.Context, leaderelection.RaceEntry) { leader("") },
	}.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) {
		leader(e.LeaderID) // empty: nobody leads
	})
}
