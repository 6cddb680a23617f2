package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// answerTime is how long a feed waits for the server's answer: to its
// subscription, and to a PING.
const answerTime = 5 * time.Second

// subscribe returns a connection of its own, when the server has confirmed the subscription. It may
// take longer than ctx lasts.
func (b *backend) subscribe(ctx context.Context) (*redis.PubSub, error) {
	client, err := b.master(ctx)
	if err != nil {
		return nil, err
	}
	s := client.Subscribe(ctx, b.opts.Channel)
	if _, err := s.ReceiveTimeout(ctx, answerTime); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("the server has not confirmed the subscription: %w", err)
	}
	return s, nil
}

// heard returns the next message. It asks after each silence whether the server is there.
func (b *backend) heard(ctx context.Context, s *redis.PubSub) (string, error) {
	for {
		m, err := s.ReceiveTimeout(ctx, b.opts.FeedSilence)
		if timedOut(err) {
			if err = s.Ping(ctx); err == nil {
				m, err = s.ReceiveTimeout(ctx, min(answerTime, b.opts.FeedSilence))
			}
			if timedOut(err) {
				err = fmt.Errorf("the server has not answered a PING for %v: %w", min(answerTime, b.opts.FeedSilence), err)
			}
		}
		if err != nil {
			return "", err
		}
		switch m := m.(type) {
		case *redis.Message:
			return m.Payload, nil
		case *redis.Subscription: // the client has connected again by itself
			return "", errors.New("the connection broke, and messages may have been lost")
		}
	}
}

// timedOut reports whether err is that the client gave the server no more time.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
