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
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// glance is how long a call may take before it is worth asking whether the
// server has refused it.
const glance = 250 * time.Millisecond

// errNotConnected is of calls that are not even tried: what a client sends while
// it is not connected would be kept, and reach the server late.
var errNotConnected = errors.New("not connected to NATS just now; the client is trying to")

// do makes one call of the server's.
func do[T any](ctx context.Context, d *Decider, call func(context.Context, *binding) (T, error)) (T, error) {
	begun := time.Now()
	v, err := within.Do(ctx, d.calls, func() (T, error) { return ask(ctx, d, call) })
	if err != nil && !lost(err) && time.Since(begun) >= glance {
		d.probe()
	}
	return v, err
}

// ask is do, where it may take longer than ctx lasts. A permission that is missing
// is not an answer in NATS: the server says so to the connection, and the request
// waits for nothing. So where an answer does not come, the connection's last error
// is looked at.
func ask[T any](ctx context.Context, d *Decider, call func(context.Context, *binding) (T, error)) (T, error) {
	var none T
	nc := d.js.Conn()
	before := nc.LastError()
	switch {
	case nc.IsClosed():
		return none, permanent(fmt.Errorf("%w: it was closed, or has given up reconnecting%s: make it with natskv.ConnectOptions, which never does", nats.ErrConnectionClosed, why(before)))
	case !nc.IsConnected():
		return none, fmt.Errorf("%w%s", errNotConnected, why(before))
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	look := time.AfterFunc(glance, func() {
		if d.denied(before) != nil {
			cancel()
		}
	})
	defer look.Stop()

	b, err := d.bind(asking)
	v := none
	if err == nil {
		v, err = call(asking, b)
	}
	if err == nil || lost(err) {
		return v, err
	}
	if denied := d.denied(before); denied != nil {
		return none, permanent(fmt.Errorf("%w: allow this user what the package comment of natskv lists", denied))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		d.bound.Store(nil) // it may have been deleted: the next call looks, and says so
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
func (d *Decider) denied(before error) error {
	err := d.js.Conn().LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	text := err.Error()
	if strings.Contains(text, `Subscription to "`+d.inbox()) {
		return err // answers cannot be received
	}
	if err != before && (strings.Contains(text, d.streamName()) || strings.Contains(text, d.subject())) {
		return err
	}
	return nil
}

// inbox is what the subjects that answers come by begin with.
func (d *Decider) inbox() string {
	if p := d.js.Conn().Opts.InboxPrefix; p != "" {
		return p + "."
	}
	return nats.InboxPrefix
}

// permanent marks err as one that no retry can cure.
func permanent(err error) error {
	return fmt.Errorf("%w: %w", err, leaderelection.ErrPermanent)
}

// lost says whether the server refused a write since the key has another
// revision: code 10071, or on a replicated bucket mostly 10164.
func lost(err error) bool {
	return refusedBy(err, jetstream.JSErrCodeStreamWrongLastSequence) || refusedBy(err, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// refusedBy says whether the server's error has this code.
func refusedBy(err error, code jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == code
}

// hopeless is what no retry can cure, and what to do about it.
var hopeless = []struct {
	is  error
	say string
}{
	{jetstream.ErrBucketNotFound, "create it (nats kv add BUCKET --replicas=3), or let Options.Create do so"},
	{jetstream.ErrBadBucket, "the stream of that name is no key-value bucket"},
	{jetstream.ErrJetStreamNotEnabled, "enable JetStream on the servers (jetstream {} in their configuration), or connect to the right ones"},
	{jetstream.ErrJetStreamNotEnabledForAccount, "enable JetStream for this account, or connect as a user of another"},
	{jetstream.ErrStreamMessageExceedsMaximum, "keep ConnectionParams and HostPort short, or raise the bucket's maximum value size"},
	{nats.ErrMaxPayload, "keep ConnectionParams and HostPort short, or raise the servers' max_payload"},
}

// failed says what was being done, where, and what to do about it.
func (d *Decider) failed(ctx context.Context, doing string, err error) error {
	for _, h := range hopeless {
		if errors.Is(err, h.is) {
			err = permanent(fmt.Errorf("%w: %s", err, h.say))
			break
		}
	}
	switch ended := ctx.Err(); {
	case ended == nil:
	case errors.Is(err, ended):
		err = fmt.Errorf("given up before NATS has answered: %w", err)
	default:
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("leaderelection: %s the record in %s: %w", doing, d.place(), err)
}
