package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
)

// writes counts a connection's writes: go-redis makes one for each request.
type writes struct {
	net.Conn
	s seat
}

func (w writes) Write(b []byte) (int, error) {
	w.s.Ops.Add(1)
	return w.Conn.Write(b)
}

func redisClient(s seat, o goredis.Options) *goredis.Client {
	o.Addr = s.Addr
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return writes{c, s}, nil
	}
	return goredis.NewClient(&o)
}

// redsyncMutex holds a lock for as long as it can.
func redsyncMutex(options ...redsync.Option) func(context.Context, seat, func()) error {
	return func(ctx context.Context, s seat, lead func()) error {
		client := redisClient(s, goredis.Options{})
		defer client.Close()
		mutex := redsync.New(redsyncpool.NewPool(client)).NewMutex(s.Key, append(slices.Clone(options), redsync.WithExpiry(s.Term))...)
		for mutex.LockContext(ctx) != nil {
			if ctx.Err() != nil {
				return nil
			}
		}
		lead()
		return hold(ctx, s, mutex)
	}
}

// hold extends a lock three times a lease, until it is lost or ctx ends. The library has no such
// loop; this one respects Until, as its documentation has callers do.
func hold(ctx context.Context, s seat, mutex *redsync.Mutex) error {
	held, drop := context.WithCancel(ctx)
	defer drop()
	end := time.AfterFunc(time.Until(mutex.Until()), drop)
	defer end.Stop()
	tick := time.NewTicker(s.Term / 3)
	defer tick.Stop()
	for {
		select {
		case <-held.Done():
			if ctx.Err() == nil {
				return nil
			}
			last, cancel := context.WithTimeout(context.Background(), s.Term)
			defer cancel()
			_, err := mutex.UnlockContext(last)
			return err
		case <-tick.C:
		}
		ok, err := mutex.ExtendContext(held)
		var taken *redsync.ErrTaken
		switch {
		case ok:
			end.Reset(time.Until(mutex.Until()))
		case errors.As(err, &taken):
			return nil // it is another's
		}
	}
}
