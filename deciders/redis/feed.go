package redis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// answerTime is how long the feed waits for the server's answer: to its
// subscription, and to a PING.
const answerTime = 5 * time.Second

// Changes implements leaderelection.ChangeFeed by a subscription. It fails when
// the connection breaks, and when the server does not answer after a silence. A
// consumer that is too slow for the server's client-output-buffer-limit loses
// its connection, too.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		if ctx.Err() != nil {
			return
		}
		if err := d.follow(ctx, yield); err != nil && ctx.Err() == nil {
			yield(nil, d.failed(ctx, "following", err))
		}
	}
}

// follow returns nil where the loop was left.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry, error) bool) error {
	if err := d.check(); err != nil {
		return err
	}
	s, err := within.Do(ctx, d.calls, func() (*subscription, error) { return d.subscribe(ctx) })
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()

	last, err := d.read(ctx) // after the subscription: nothing falls between
	if err != nil {
		return err
	}
	given := *last
	for yield(last, nil) {
		for last = nil; last == nil; {
			text, err := s.next(ctx)
			if err != nil {
				return err
			}
			if last, err = d.pushed(ctx, text, &given); err != nil {
				return err
			}
		}
		given = *last
	}
	return nil
}

// pushed is the record in a message, or nil where it is not news.
func (d *Decider) pushed(ctx context.Context, text string, given *leaderelection.RaceEntry) (*leaderelection.RaceEntry, error) {
	v, rec, _ := strings.Cut(text, "\n")
	e, err := d.entry(answer{status: done, version: version(v), record: rec})
	if err != nil || d.doubtful(version(v)) {
		// Somebody else's message, which tells nothing; or a write of one's
		// own that waits for the replicas, as reading does.
		if e, err = d.read(ctx); err != nil {
			return nil, err
		}
	}
	if e.Token == given.Token || e.Compare(given) < 0 {
		return nil, nil // published before it was read
	}
	return e, nil
}

// subscription is a live one.
type subscription struct {
	*redis.PubSub
	silence time.Duration
	heard   atomic.Uint64 // what has come so far
	dead    atomic.Bool   // no answer to a PING
	end     context.CancelFunc
	watcher sync.WaitGroup
	once    sync.Once
}

// subscribe returns when the server has confirmed the subscription.
func (d *Decider) subscribe(ctx context.Context) (*subscription, error) {
	client, err := d.master(ctx)
	if err != nil {
		return nil, err
	}
	p := client.Subscribe(ctx, d.opts.Channel)
	defer context.AfterFunc(ctx, func() { _ = p.Close() })()
	m, err := p.ReceiveTimeout(ctx, answerTime)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if _, ok := m.(*redis.Subscription); !ok {
		return nil, errors.Join(fmt.Errorf("the subscription is answered by a %T", m), p.Close())
	}
	watching, end := context.WithCancel(ctx)
	s := &subscription{PubSub: p, silence: d.opts.FeedSilence, end: end}
	s.watcher.Go(func() { s.watch(watching) })
	return s, nil
}

// Close ends the subscription, and waits for its goroutine. A second call does
// nothing.
func (s *subscription) Close() error {
	var err error
	s.once.Do(func() {
		s.end()
		err = s.PubSub.Close()
		s.watcher.Wait()
	})
	return err
}

// next returns the next message.
func (s *subscription) next(ctx context.Context) (string, error) {
	for {
		m, err := s.Receive(ctx)
		s.heard.Add(1)
		switch m := m.(type) {
		case *redis.Message:
			return m.Payload, nil
		case *redis.Subscription:
			// The client has connected again by itself.
			return "", errors.New("the connection broke, and messages may have been lost")
		}
		if err != nil && s.dead.Load() {
			return "", fmt.Errorf("the server has not answered a PING for %v: %w", answerTime, err)
		}
		if err != nil {
			return "", err
		}
	}
}

// watch asks after each silence whether the server is there, and ends the
// subscription where it is not.
func (s *subscription) watch(ctx context.Context) {
	wait := func(d time.Duration) (quiet bool) {
		before := s.heard.Load()
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return false
		}
		return s.heard.Load() == before
	}
	for ctx.Err() == nil {
		if !wait(s.silence) {
			continue
		}
		if s.Ping(ctx) != nil || wait(min(answerTime, s.silence)) {
			s.dead.Store(true)
			_ = s.PubSub.Close()
			return
		}
	}
}
