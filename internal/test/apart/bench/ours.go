package main

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

// opener opens the election of a seat on one kind of store, and returns what ends its client.
type opener func(s seat) (d leaderelection.RaceDecider, done func(), err error)

// ours contests with this library. It extends after so many fifteenths of the term; 0 is the default.
func ours(open opener, extend time.Duration) func(context.Context, seat, func()) error {
	return func(ctx context.Context, s seat, lead func()) error {
		d, done, err := open(s)
		if err != nil {
			return err
		}
		defer done()
		err = leaderelection.Config{
			Decider: d, LeaderID: s.ID, TermLength: s.Term, MaxClockSkew: s.Term / 15, ExtendEvery: s.Term * extend / 15,
			OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
				lead()
				<-ctx.Done()
			},
		}.Acquire(ctx)
		if ctx.Err() == nil {
			return err
		}
		return nil
	}
}

func etcdDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c, err := etcdClient(s)
	return etcd.NewDecider(c, s.Key, nil), func() { _ = c.Close() }, err
}

func redisDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c := redisClient(s, goredis.Options{MaxRetries: -1, ContextTimeoutEnabled: true}) // as the package's example
	return redis.NewDecider(c, s.Key, nil), func() { _ = c.Close() }, nil
}

func leaseDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c, err := leaseClient(s)
	if err != nil {
		return nil, nil, err
	}
	return kubernetes.NewDecider(c.RESTClient(), namespace, s.Key, nil), func() {}, nil
}
