package main

import (
	"context"
	"io"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/deciders/kubernetes"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

// opener opens the election of a seat on one kind of store, with a client of its
// own.
type opener func(s seat) (leaderelection.RaceDecider, io.Closer, error)

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

func campaign(ctx context.Context, s seat, open opener, c leaderelection.Config, lead func(belief)) error {
	d, client, err := open(s)
	if err != nil {
		return err
	}
	defer client.Close()
	c.Decider = d
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

func etcdDecider(s seat) (leaderelection.RaceDecider, io.Closer, error) {
	client, err := etcdClient(s)
	if err != nil {
		return nil, nil, err
	}
	return etcd.NewDecider(client, s.Key, nil), client, nil
}

func redisDecider(s seat) (leaderelection.RaceDecider, io.Closer, error) {
	client := redisClient(s, goredis.Options{MaxRetries: -1, ContextTimeoutEnabled: true}) // as the package's example
	return redis.NewDecider(client, s.Key, nil), client, nil
}

func leaseDecider(s seat) (leaderelection.RaceDecider, io.Closer, error) {
	client, err := leaseClient(s)
	if err != nil {
		return nil, nil, err
	}
	return kubernetes.NewDecider(client.RESTClient(), namespace, s.Key, nil), io.NopCloser(strings.NewReader("")), nil
}
