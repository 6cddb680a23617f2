package natskv

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// heartbeat is how often the server tells a feed that it is alive, when it has
// nothing else to tell.
const heartbeat = time.Second

var (
	errSilent = fmt.Errorf("the server has been silent for %v: the connection or the consumer is gone", 2*heartbeat)
	errMissed = errors.New("a message was missed")
)

// Changes implements leaderelection.ChangeFeed with a consumer of the bucket's stream, such as a
// key-value watch has. It ends with an error if two heartbeats are missing, a message was missed,
// the server has removed the consumer, or the connection is closed. It does not notice a reconnect
// that is quicker than the heartbeats and misses nothing.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, func(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
		err := d.follow(ctx, yield)
		if errors.Is(err, errSilent) {
			d.k.probe()
		}
		return err
	})
}

func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	f, err := do(ctx, d.k, d.k.consume)
	if err != nil {
		return err
	}
	defer f.end()
	s := d.k.nothing()
	if !f.empty {
		s, err = f.next(ctx)
	}
	for err == nil {
		e, wrong := d.election.Entry(s)
		if wrong != nil {
			return wrong
		}
		if !yield(e) {
			return nil
		}
		s, err = f.next(ctx)
	}
	return err
}

// feed is one run of Changes. It has no goroutine of its own.
type feed struct {
	k     *backend
	sub   *nats.Subscription
	empty bool   // no message waits to be its first
	seen  uint64 // how many messages the server has sent, as the last one says
}

// consume starts a feed.
//
// The consumer belongs to nobody but this subscription: it is kept in the memory
// of one server, wants no acknowledgements, and is removed by the server a
// moment after the subscription has ended.
func (k *backend) consume(ctx context.Context, _ *binding) (*feed, error) {
	nc := k.js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	c, err := k.js.CreatePushConsumer(ctx, k.streamName(), jetstream.ConsumerConfig{
		Description:    "leaderelection",
		DeliverSubject: inbox,
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
		FilterSubject:  k.subject(),
		AckPolicy:      jetstream.AckNonePolicy,
		MaxDeliver:     1,
		IdleHeartbeat:  heartbeat,
		MemoryStorage:  true,
		Replicas:       1,
		// A client that is away for longer has given the feed up.
		InactiveThreshold: 2 * heartbeat,
	})
	if err != nil {
		return nil, errors.Join(err, sub.Unsubscribe())
	}
	return &feed{k: k, sub: sub, empty: c.CachedInfo().NumPending == 0}, nil
}

// Close ends the subscription.
func (f *feed) Close() error { return f.sub.Unsubscribe() }

// end is Close, and waits for no connection that is stuck.
func (f *feed) end() {
	ctx, cancel := context.WithTimeout(context.Background(), glance)
	defer cancel()
	// The subscription of a closed connection has ended already.
	_, _ = within.Do(ctx, f.k.calls, func() (any, error) { return nil, f.Close() })
}

// next waits for the key's next message.
func (f *feed) next(ctx context.Context) (s store.Stored[token], err error) {
	for {
		m, err := f.receive(ctx)
		if err != nil {
			return s, err
		}
		if status := m.Header.Get("Status"); status != "" {
			if err := f.control(status, m.Header); err != nil {
				return s, err
			}
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return s, err
		}
		if m.Subject != f.k.subject() || meta.Stream != f.k.streamName() {
			return s, fmt.Errorf("a message of stream %q, subject %q has come", meta.Stream, m.Subject)
		}
		if f.seen++; meta.Sequence.Consumer != f.seen {
			return s, errMissed
		}
		return f.k.stored(meta.Sequence.Stream, meta.Timestamp, m.Header, m.Data), nil
	}
}

// receive waits for anything from the server.
func (f *feed) receive(ctx context.Context) (*nats.Msg, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, 2*heartbeat, errSilent)
	defer cancel()
	m, err := f.sub.NextMsgWithContext(waiting)
	if err != nil && waiting.Err() != nil {
		err = context.Cause(waiting)
	}
	return m, err
}

// control takes in a message that is about the consumer itself.
func (f *feed) control(status string, h nats.Header) error {
	if status != "100" {
		return fmt.Errorf("the server has ended the consumer: %s %s", status, h.Get("Description"))
	}
	last := h.Get("Nats-Last-Consumer")
	if n, err := strconv.ParseUint(last, 10, 64); err == nil && n != f.seen {
		return errMissed
	}
	return nil
}
