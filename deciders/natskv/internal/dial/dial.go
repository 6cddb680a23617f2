// Package dial makes connections to NATS, as a URL and the contexts of the nats command
// line say.
package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Silence is how long a server may leave a PING unanswered.
const Silence = 2 * time.Second

// Options is what a connection should have that elections depend on.
func Options() []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(time.Second),
		nats.PingInterval(Silence),
		nats.MaxPingsOutstanding(1),
		nats.FlusherTimeout(2 * Silence),
	}
}

// login is how to reach the servers, and as whom.
type login struct {
	creds, nkey, ca, cert, certKey, inboxPrefix string
	user, password, token                       string
}

// now is the login as a context says it now, which may have another password. One that cannot be read
// leaves it as it was: somebody may be about to write it.
func (t *Target) now() login {
	if t.again != nil {
		if now, err := t.again(); err == nil {
			return now.login
		}
	}
	return t.login
}

// options is the login as nats.go takes it.
func (t *Target) options() ([]nats.Option, error) {
	l := &t.login
	o := append(Options(),
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
	if t.secure {
		o = append(o, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
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
		return nil, errors.New("tls_cert and tls_key go together")
	}
	if l.cert != "" {
		o = append(o, nats.ClientCert(l.cert, l.certKey))
	}
	if l.user != "" {
		o = append(o, nats.UserInfoHandler(func() (string, string) { l := t.now(); return l.user, l.password }))
	}
	if l.token != "" {
		o = append(o, nats.TokenHandler(func() string { return t.now().token }))
	}
	if l.inboxPrefix != "" {
		o = append(o, nats.CustomInboxPrefix(l.inboxPrefix))
	}
	return o, nil
}

// Connect connects to one of the servers, for no longer than ctx lasts.
func (t *Target) Connect(ctx context.Context) (*nats.Conn, error) {
	o, err := t.options()
	if err != nil {
		return nil, store.WrongURL(err)
	}
	c, err := within.Do(ctx, make(within.Calls, 1), func() (connection, error) {
		nc, err := nats.Connect(strings.Join(t.servers, ","), o...)
		return connection{nc}, err
	})
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, context.Cause(ctx)
	case errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) ||
		errors.Is(err, nats.ErrAccountAuthExpired):
		return nil, store.Wrong("%w", err)
	}
	return c.Conn, err
}

// connection is one that within.Do closes if it comes too late: nats.Connect knows no
// ctx, and gives up by its own timeout.
type connection struct{ *nats.Conn }

// Close implements io.Closer.
func (c connection) Close() error {
	c.Conn.Close()
	return nil
}

// JetStream is the API of the target's domain.
func (t *Target) JetStream(nc *nats.Conn) (jetstream.JetStream, error) {
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
