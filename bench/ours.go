package main

import (
	"context"
	"errors"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

// opener opens the election of a seat on one kind of store, and returns what ends its
// client.
type opener func(s seat) (leaderelection.RaceDecider, func(), error)

// ours contests with this library; adjust, which may be nil, changes the settings.
func ours(open opener, adjust func(*leaderelection.Config, seat)) func(context.Context, seat, func(belief)) error {
	return func(ctx context.Context, s seat, lead func(belief)) error {
		c := leaderelection.Config{LeaderID: s.ID, TermLength: s.Term, MaxClockSkew: s.Term / 15}
		if adjust != nil {
			adjust(&c, s)
		}
		return campaign(ctx, s, open, c, lead)
	}
}

// oftener is an adjust: extensions are made after 4 of 15 s.
func oftener(c *leaderelection.Config, s seat) { c.ExtendEvery = s.Term * 4 / 15 }

// slowClock is an adjust: the clock of whoever leads first is a third of a term slow.
func slowClock(c *leaderelection.Config, s seat) {
	if s.ID == firstID {
		c.Clock = clocks.NewOffset(clocks.System(), -s.Term/3)
	}
}

// errUndertaker is why an undertaker does not lead.
var errUndertaker = errors.New("this is an undertaker, which stands for no election")

func campaign(ctx context.Context, s seat, open opener, c leaderelection.Config, lead func(belief)) error {
	d, done, err := open(s)
	if err != nil {
		return err
	}
	defer done()
	c.Decider = d
	if c.Lifeline = s.Line; s.Undertake {
		c.Healthy = func(context.Context) error { return errUndertaker }
	}
	c.OnElected = func(ctx context.Context, view *leaderelection.TimeView) {
		lead(belief{
			told:  func() bool { return ctx.Err() == nil },
			asked: view.ValueInFuture,
		})
		<-ctx.Done()
	}
	if err := c.Acquire(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

func etcdDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c, done, err := client(s, etcdClient)
	return etcd.NewDecider(c, s.Key, nil), done, err
}

// polledDecider hides the feed of etcd's.
func polledDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	d, done, err := etcdDecider(s)
	return struct{ leaderelection.RaceDecider }{d}, done, err
}

// feeds is a client of Redis with what the elections of a process share.
type feeds struct {
	*goredis.Client
	shared *redis.Feeds
}

func redisDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c, done, err := client(s, func(s seat) (feeds, error) {
		return feeds{redisClient(s, goredis.Options{MaxRetries: -1, ContextTimeoutEnabled: true}), new(redis.Feeds)}, nil // as the package's example
	})
	if err != nil {
		return nil, nil, err
	}
	o := new(redis.Options)
	if s.Clients != nil {
		o.Feeds = c.shared
	}
	if s.Sentinel {
		o.WaitReplicas = sentinelReplicas - 1 // which may forget a write; with all, nobody leads until the killed master is back
	}
	return redis.NewDecider(c.Client, s.Key, o), done, err
}

func leaseDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c, done, err := client(s, leaseClient)
	if err != nil {
		return nil, nil, err
	}
	return kubernetes.NewDecider(c.RESTClient(), namespace, s.Key, nil), done, nil
}

func consulDecider(s seat) (leaderelection.RaceDecider, func(), error) {
	c, done, err := client(s, consulClient)
	return consul.NewDecider(c.Client, "http://"+s.Addr, s.Key, nil), done, err
}
