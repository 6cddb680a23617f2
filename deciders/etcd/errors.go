package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/connectivity"

	"github.com/c8e606e4/leaderelection"
)

// remedies says what to do about errors that no retry can cure.
var remedies = []struct {
	err  error
	what string
}{
	{rpctypes.ErrPermissionDenied, "grant the user's role readwrite on this key (an observer's: read)"},
	{rpctypes.ErrUserEmpty, "this etcd demands authentication; give the client a user and password, or a client certificate"},
	{rpctypes.ErrUserNotFound, "etcd does not know the client's user"},
	{rpctypes.ErrAuthFailed, "the user or the password is wrong"},
	{rpctypes.ErrInvalidAuthToken, "the client's token is not valid, or has expired; make a new client"},
	{rpctypes.ErrEmptyKey, "give the election a name"},
	{rpctypes.ErrRequestTooLarge, "keep ConnectionParams and HostPort short, or raise etcd's --max-request-bytes"},
	{errClientClosed, "keep the client open as long as the Decider is in use"},
}

var (
	errClientClosed = errors.New("the etcd client is closed")
	errNoConnection = errors.New("there is no connection")
	errFeedEnded    = errors.New("the watch ended")
)

// failed says what was being done and where, and what to do about it. It wraps
// leaderelection.ErrPermanent where no retry can help.
func (d *Decider) failed(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("leaderelection/etcd: %s %s: %w%s", doing, d.place(), err, d.connection())
	}
	if d.connectionState() == connectivity.Shutdown {
		err = fmt.Errorf("%w (%w)", errClientClosed, err)
	}
	for _, r := range remedies {
		if errors.Is(err, r.err) {
			return fmt.Errorf("leaderelection/etcd: %s %s: %w: %s: %w", doing, d.place(), err, r.what, leaderelection.ErrPermanent)
		}
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("leaderelection/etcd: %s %s: %w: compact and defragment etcd, or raise --quota-backend-bytes, then etcdctl alarm disarm", doing, d.place(), err)
	}
	return fmt.Errorf("leaderelection/etcd: %s %s: %w", doing, d.place(), err)
}

// connection is said of a request whose ctx ended while there was no connection:
// etcd's client waits for one, and says no more than that time was up.
func (d *Decider) connection() string {
	s := d.connectionState()
	if s == connectivity.Ready || s == connectivity.Idle {
		return ""
	}
	return fmt.Sprintf(" (the connection to etcd is in state %s: are the endpoints right, and do both sides agree on TLS?)", s)
}

// connectionState is Ready where the client does not say.
func (d *Decider) connectionState() connectivity.State {
	if conn := d.client.ActiveConnection(); conn != nil {
		return conn.GetState()
	}
	return connectivity.Ready
}
