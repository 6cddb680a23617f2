package natskv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// glance is how long a call may take before it is worth asking whether the
// server has refused it.
const glance = 250 * time.Millisecond

// errNotConnected is of calls that are not even tried: what a client sends while
// it is not connected would be kept, and reach the server late.
var errNotConnected = errors.New("not connected to NATS at the moment; the client is trying to connect")

// do makes one call of the server's.
func do[T any](ctx context.Context, k *backend, call func(context.Context, *binding) (T, error)) (T, error) {
	begun := time.Now()
	v, err := within.Do(ctx, k.calls, func() (T, error) { return ask(ctx, k, call) })
	if err != nil && !lost(err) && time.Since(begun) >= glance {
		k.probe()
	}
	return v, err
}

// probe leaves the server for another, or for a new connection to the same, if it
// does not answer a PING, and sends nothing else either. A connection that is made
// without ConnectOptions does so after minutes only, and all candidates may hang on
// the same server.
func (k *backend) probe() {
	if !k.probing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer k.probing.Store(false)
		nc := k.js.Conn()
		before := nc.Stats()
		ctx, cancel := context.WithTimeout(context.Background(), silence)
		defer cancel()
		if !errors.Is(nc.FlushWithContext(ctx), context.DeadlineExceeded) {
			return // it has answered, or the connection is down already
		}
		now := nc.Stats()
		if nc.IsConnected() && now.InMsgs == before.InMsgs && now.Reconnects == before.Reconnects {
			_ = nc.ForceReconnect() // it fails if the connection is closed
		}
	}()
}

// ask is do, if it may take longer than ctx lasts. A permission that is missing
// is not an answer in NATS: the server says so to the connection, and the request
// waits for nothing. So if an answer does not come, the connection's last error
// is looked at.
func ask[T any](ctx context.Context, k *backend, call func(context.Context, *binding) (T, error)) (T, error) {
	var none T
	nc := k.js.Conn()
	before := nc.LastError()
	switch {
	case nc.IsClosed():
		return none, store.Wrong("%w: it was closed, or has given up reconnecting%s: make it with natskv.ConnectOptions, which never does", nats.ErrConnectionClosed, why(before))
	case !nc.IsConnected():
		return none, fmt.Errorf("%w%s", errNotConnected, why(before))
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	look := time.AfterFunc(glance, func() {
		if k.denied(before) != nil {
			cancel()
		}
	})
	defer look.Stop()

	b, err := k.bind(asking)
	v := none
	if err == nil {
		v, err = call(asking, b)
	}
	if err == nil || lost(err) {
		return v, err
	}
	if denied := k.denied(before); denied != nil {
		return none, fmt.Errorf("%w: %w: allow this user what the package comment of natskv lists", denied, leaderelection.ErrDenied)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		k.bound.Store(nil) // it may have been deleted: the next call looks, and says so
	}
	return none, err
}

// why is the last error of a connection that is down, if there is one.
func why(last error) string {
	if last == nil {
		return ""
	}
	return fmt.Sprintf(" (%v)", last)
}

// denied returns the server's refusal of something that this decider needs,
// where it came after before, or where it is of the kind that comes only once.
func (k *backend) denied(before error) error {
	err := k.js.Conn().LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	text := err.Error()
	if strings.Contains(text, `Subscription to "`+k.inbox()) {
		return err // answers cannot be received
	}
	if err != before && (strings.Contains(text, k.streamName()) || strings.Contains(text, k.subject())) {
		return err
	}
	return nil
}

// inbox is what the subjects that answers come by begin with.
func (k *backend) inbox() string {
	if p := k.js.Conn().Opts.InboxPrefix; p != "" {
		return p + "."
	}
	return nats.InboxPrefix
}

// lost reports whether the server refused a write since the key has another
// revision: code 10071, or on a replicated bucket mostly 10164.
func lost(err error) bool {
	return refusedBy(err, jetstream.JSErrCodeStreamWrongLastSequence) || refusedBy(err, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// refusedBy reports whether the server's error has this code.
func refusedBy(err error, code jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == code
}

// remedies says what to do about what no retry can cure.
var remedies = store.Remedies{
	{Err: jetstream.ErrBucketNotFound, Advice: "create it (nats kv add BUCKET --replicas=3), or let Options.Create do so (create=true in an address)"},
	{Err: jetstream.ErrBadBucket, Advice: "the stream of that name is not a key-value bucket"},
	{Err: jetstream.ErrJetStreamNotEnabled, Advice: "enable JetStream on the servers (jetstream {} in their configuration), or connect to the right ones"},
	{Err: jetstream.ErrJetStreamNotEnabledForAccount, Advice: "enable JetStream for this account, or connect as a user of another"},
	{Err: jetstream.ErrStreamMessageExceedsMaximum, Advice: "keep ConnectionParams and HostPort short, or raise the bucket's maximum value size"},
	{Err: nats.ErrMaxPayload, Advice: "keep ConnectionParams and HostPort short, or raise the servers' max_payload"},
}

// Judge implements store.Store.
func (k *backend) Judge(err error) store.Verdict {
	if lost(err) {
		return store.Lost
	}
	return remedies.Judge(err)
}

// WhyLate is said of a call whose ctx has ended.
func (k *backend) WhyLate() string { return "NATS did not answer in time" }
