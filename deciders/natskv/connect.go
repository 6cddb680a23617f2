package natskv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// ConnectOptions returns what a connection should have that elections depend on,
// for nats.Connect; one's own options may follow.
//
// With them it never gives up. By itself nats.go stops for good after sixty attempts,
// and when a server has refused the user twice, as while a password is changed. It
// also leaves a server that has fallen silent after four seconds, in place of six
// minutes, and waits for a second between attempts.
func ConnectOptions() []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(time.Second),
		nats.PingInterval(silence),
		nats.MaxPingsOutstanding(1),
		nats.FlusherTimeout(2 * silence),
	}
}

// silence is how long a server may leave a PING unanswered.
const silence = 2 * time.Second

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
			_ = nc.ForceReconnect() // it fails where the connection is closed
		}
	}()
}

// login is how to reach the servers, and as whom.
type login struct {
	creds, nkey, ca, cert, certKey, inboxPrefix string
	user, password, token                       string
}

// options is the login as nats.go takes it.
func (l *login) options() ([]nats.Option, error) {
	o := append(ConnectOptions(),
		nats.Name("leaderelection"),
		// What goes wrong is said by the calls that it befalls.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	for _, file := range []string{l.creds, l.nkey, l.ca, l.cert, l.certKey} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return nil, err
		}
	}
	if l.creds != "" {
		o = append(o, nats.UserCredentials(l.creds))
	}
	if l.nkey != "" {
		seed, err := nats.NkeyOptionFromSeed(l.nkey)
		if err != nil {
			return nil, fmt.Errorf("nkey %s: %w", l.nkey, err)
		}
		o = append(o, seed)
	}
	if l.ca != "" {
		o = append(o, nats.RootCAs(l.ca))
	}
	if (l.cert == "") != (l.certKey == "") {
		return nil, errors.New("tlscert and tlskey go together")
	}
	if l.cert != "" {
		o = append(o, nats.ClientCert(l.cert, l.certKey))
	}
	if l.user != "" {
		o = append(o, nats.UserInfo(l.user, l.password))
	}
	if l.token != "" {
		o = append(o, nats.Token(l.token))
	}
	if l.inboxPrefix != "" {
		o = append(o, nats.CustomInboxPrefix(l.inboxPrefix))
	}
	return o, nil
}

// connect connects to one of the servers, for no longer than ctx lasts.
func connect(ctx context.Context, t *target) (*nats.Conn, error) {
	o, err := t.options()
	if err != nil {
		return nil, store.Wrong("%w", err)
	}
	type result struct {
		nc  *nats.Conn
		err error
	}
	connected := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(strings.Join(t.servers, ","), o...)
		connected <- result{nc, err}
	}()
	select {
	case r := <-connected:
		if errors.Is(r.err, nats.ErrAuthorization) || errors.Is(r.err, nats.ErrAuthExpired) || errors.Is(r.err, nats.ErrAuthRevoked) ||
			errors.Is(r.err, nats.ErrAccountAuthExpired) {
			return nil, store.Wrong("%w", r.err)
		}
		return r.nc, r.err
	case <-ctx.Done():
		go func() { // nats.Connect knows no ctx, and gives up by its own timeout
			if r := <-connected; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// jetStream is the API of the target's domain.
func (t *target) jetStream(nc *nats.Conn) (jetstream.JetStream, error) {
	switch {
	case t.domain != "" && t.apiPrefix != "":
		return nil, errors.New("a JetStream domain and an API prefix: only one of them can be")
	case t.domain != "":
		return jetstream.NewWithDomain(nc, t.domain)
	case t.apiPrefix != "":
		return jetstream.NewWithAPIPrefix(nc, t.apiPrefix)
	}
	return jetstream.New(nc)
}
