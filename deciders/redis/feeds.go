package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// answerTime is how long a feed waits for the server's answer: to its
// subscription, and to a PING.
const answerTime = 5 * time.Second

// queued is how many messages wait for a feed's consumer; when more come, it reads.
const queued = 64

// Feeds lets the feeds of many elections share connections, one for each server that their clients
// lead to. Give the same Feeds to the Options of all of them. The zero value is ready.
type Feeds struct {
	mu    sync.Mutex // guards all that is below, also in lines and their channels
	lines map[redis.UniversalClient]*line
}

// line is one connection with subscriptions.
type line struct {
	feeds    *Feeds
	client   redis.UniversalClient
	pubsub   *redis.PubSub
	silence  time.Duration
	channels map[string]*channel
	asked    map[string]int // how often the server was, or will be, asked for a channel
	answered map[string]int // how often it has confirmed one
	orders   []order        // yet to be sent
	sending  bool

	ctx    context.Context // ends with the line, and err says why
	end    context.CancelFunc
	err    error
	start  sync.Once
	active sync.WaitGroup
}

// order is what the server is to be told.
type order struct {
	tell func(ctx context.Context, channels ...string) error
	name string
}

// channel is a channel that somebody subscribes to.
type channel struct {
	subscribers map[*subscription]bool
	turn        int           // which of the server's answers is for it
	confirmed   chan struct{} // closed when that has come
}

// subscription is one feed's.
type subscription struct {
	line   *line
	name   string
	texts  chan string
	missed bool // one that did not fit into texts
}

// subscribe returns when the server has confirmed the subscription. It may take
// longer than ctx lasts.
func (f *Feeds) subscribe(ctx context.Context, client redis.UniversalClient, name string, silence time.Duration) (*subscription, error) {
	s, confirmed := f.join(client, name, silence)
	timeout := time.NewTimer(answerTime)
	defer timeout.Stop()
	var err error
	select {
	case <-confirmed:
		return s, nil
	case <-s.line.ctx.Done():
		err = s.line.why()
	case <-timeout.C:
		err = fmt.Errorf("the server has not confirmed the subscription for %v", answerTime)
		s.line.fail(err)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.close()
	return nil, err
}

// join adds a subscription to the line to a server. It makes the line where there
// is none, and asks for the channel if nobody has it yet.
func (f *Feeds) join(client redis.UniversalClient, name string, silence time.Duration) (s *subscription, confirmed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var l *line
	shared := findable(client)
	if shared {
		l = f.lines[client]
	}
	if l == nil {
		l = &line{
			feeds: f, client: client, pubsub: client.Subscribe(context.Background()), silence: silence,
			channels: map[string]*channel{}, asked: map[string]int{}, answered: map[string]int{},
		}
		l.ctx, l.end = context.WithCancel(context.Background())
		if shared {
			if f.lines == nil {
				f.lines = map[redis.UniversalClient]*line{}
			}
			f.lines[client] = l
		}
	}
	c := l.channels[name]
	if c == nil {
		l.asked[name]++
		c = &channel{subscribers: map[*subscription]bool{}, turn: l.asked[name], confirmed: make(chan struct{})}
		l.channels[name] = c
		l.send(l.pubsub.Subscribe, name)
	}
	s = &subscription{line: l, name: name, texts: make(chan string, queued)}
	c.subscribers[s] = true
	return s, c.confirmed
}

// findable reports whether a client can be found again in a map: somebody's own
// type may not be.
func findable(client redis.UniversalClient) bool { return reflect.ValueOf(client).Comparable() }

// send tells the server something, after all that it was told before, and without
// the lock, since that may take as long as a connection takes to be made.
func (l *line) send(tell func(context.Context, ...string) error, name string) {
	l.orders = append(l.orders, order{tell, name})
	if l.sending {
		return
	}
	l.sending = true
	l.active.Go(func() {
		for {
			l.feeds.mu.Lock()
			if l.sending = len(l.orders) > 0 && l.ctx.Err() == nil; !l.sending {
				l.feeds.mu.Unlock()
				return
			}
			next := l.orders[0]
			l.orders = l.orders[1:]
			l.feeds.mu.Unlock()
			ctx, cancel := context.WithTimeout(l.ctx, answerTime)
			err := next.tell(ctx, next.name)
			cancel()
			if err != nil {
				l.fail(err)
				return
			}
			l.start.Do(func() { l.active.Go(l.receive) })
		}
	})
}

// close ends the subscription, and the line with its goroutine if it was the last.
func (s *subscription) close() {
	l, f := s.line, s.line.feeds
	f.mu.Lock()
	c := l.channels[s.name]
	delete(c.subscribers, s)
	if len(c.subscribers) == 0 {
		delete(l.channels, s.name)
		if len(l.channels) > 0 && l.ctx.Err() == nil {
			l.send(l.pubsub.Unsubscribe, s.name)
		}
	}
	last := len(l.channels) == 0
	if last {
		l.over(errors.New("nobody follows"))
	}
	f.mu.Unlock()
	if last {
		_ = l.pubsub.Close() // it may be closed already
		l.active.Wait()
	}
}

// fail ends the line for all that use it. The first error stays.
func (l *line) fail(err error) {
	l.feeds.mu.Lock()
	l.over(err)
	l.feeds.mu.Unlock()
	_ = l.pubsub.Close()
}

// over is fail without the lock, and without the connection's end.
func (l *line) over(err error) {
	if l.err == nil {
		l.err = err
	}
	if f := l.feeds; findable(l.client) && f.lines[l.client] == l {
		delete(f.lines, l.client)
	}
	l.end()
}

func (l *line) why() error {
	l.feeds.mu.Lock()
	defer l.feeds.mu.Unlock()
	return l.err
}

// receive hands out what the server sends, and asks after each silence whether it
// is there.
func (l *line) receive() {
	for {
		m, err := l.pubsub.ReceiveTimeout(l.ctx, l.silence)
		if timedOut(err) {
			if err = l.pubsub.Ping(l.ctx); err == nil {
				m, err = l.pubsub.ReceiveTimeout(l.ctx, min(answerTime, l.silence))
			}
			if timedOut(err) {
				err = fmt.Errorf("the server has not answered a PING for %v: %w", min(answerTime, l.silence), err)
			}
		}
		if err == nil {
			err = l.take(m)
		}
		if err != nil {
			l.fail(err)
			return
		}
	}
}

// timedOut reports whether err is that the client gave the server no more time.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// take takes in one message of the server's.
func (l *line) take(message any) error {
	l.feeds.mu.Lock()
	defer l.feeds.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		c := l.channels[m.Channel]
		if c == nil {
			return nil // nobody's any more
		}
		for s := range c.subscribers {
			select {
			case s.texts <- m.Payload:
			default:
				s.missed = true
			}
		}
	case *redis.Subscription:
		if m.Kind != "subscribe" {
			return nil
		}
		l.answered[m.Channel]++
		n := l.answered[m.Channel]
		if n > l.asked[m.Channel] {
			// The client has connected again by itself.
			return errors.New("the connection broke, and messages may have been lost")
		}
		if c := l.channels[m.Channel]; c != nil && c.turn == n {
			close(c.confirmed)
		}
	}
	return nil
}

// next returns the next message; an empty one if some were lost for want of room.
func (s *subscription) next(ctx context.Context) (string, error) {
	s.line.feeds.mu.Lock()
	missed := s.missed
	s.missed = false
	s.line.feeds.mu.Unlock()
	if missed {
		return "", nil
	}
	select {
	case text := <-s.texts:
		return text, nil
	case <-s.line.ctx.Done():
		return "", s.line.why()
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
