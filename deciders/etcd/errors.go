package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

var remedies = store.Remedies{
	{Err: rpctypes.ErrPermissionDenied, Advice: "grant the user's role readwrite on this key (an observer's: read)", Denied: true},
	{Err: rpctypes.ErrUserEmpty, Advice: "this etcd demands authentication: give the client a user and password, or a client certificate", Denied: true},
	{Err: rpctypes.ErrUserNotFound, Advice: "etcd does not know the client's user", Denied: true},
	{Err: rpctypes.ErrAuthFailed, Advice: "the user or the password is wrong", Denied: true},
	{Err: rpctypes.ErrInvalidAuthToken, Advice: "the client's token is not valid, or has expired: make a new client", Denied: true},
	{Err: rpctypes.ErrEmptyKey, Advice: "give the election a name"},
	{Err: rpctypes.ErrRequestTooLarge, Advice: "keep ConnectionParams and HostPort short, or raise etcd's --max-request-bytes"},
}

// noSpace is what to do about a full database.
const noSpace = "compact and defragment etcd, or raise --quota-backend-bytes, then etcdctl alarm disarm"

var (
	errNoConnection = errors.New("there is no connection")
	errFeedEnded    = errors.New("the watch ended")
	errOdd          = errors.New("that cannot be: is there a proxy, or something else, at the endpoints, or was the server set back?")
	errNotEtcd      = errors.New("the response lacks what etcd's responses have: is there a proxy, or something else, at the endpoints?")
)

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	switch {
	case b.connectionState() == connectivity.Shutdown:
		return store.Permanent("the etcd client is closed; keep it open as long as the Decider is in use")
	case errors.Is(err, rpctypes.ErrNoSpace):
		return store.Passing(noSpace)
	}
	return remedies.Judge(err)
}

// WhyLate is said of a request whose ctx ended. Etcd's client waits for a
// connection, and says no more than that time was up.
func (b *backend) WhyLate() string {
	if b.connectionState() == connectivity.Ready {
		return "there is a connection, and etcd has not answered in time" + b.whyNoLogin()
	}
	return fmt.Sprintf("%v: %v", errNoConnection, b.whyNoConnection())
}

// whyNoLogin says that the client may have no valid token. Etcd's client logs in again with the token
// that was refused, and etcd before 3.5 refuses that, too: after a restart, and when a token has expired.
func (b *backend) whyNoLogin() string {
	const remedy = "etcd before 3.5 refuses the login of a client whose token it has forgotten, after a restart or five idle minutes: "
	if c, is := b.client.(*clientv3.Client); !is || c.Username == "" {
		return ""
	}
	if b.login == nil {
		return ". If this goes on, make a new client: " + remedy + "use one from 3.5 on, or open the election by URL with open.Stores, which replaces a client that keeps failing"
	}
	if why := b.login.Load(); why != nil {
		return fmt.Sprintf(", and it refuses the client's login (%s). %sopen.Stores, and so the command leaderelect, makes a new client after a term", status.Convert(*why).Message(), remedy)
	}
	return ""
}

// whyNoConnection is what came of the last attempt to connect.
func (b *backend) whyNoConnection() error {
	conn := b.client.ActiveConnection()
	if conn == nil {
		return errors.New("the client does not say why")
	}
	state := conn.GetState()
	if state != connectivity.TransientFailure {
		return fmt.Errorf("it is in state %s, and no attempt has come to an end: are the endpoints right, and can they be reached?", state)
	}
	// GRPC keeps the reason to itself, and tells it to a request that does not wait: that
	// is refused before anything is sent.
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(false))
	if err == nil {
		return errors.New("it is back by now")
	}
	return connectionError(err)
}

// askTimeout is for a connection that is back when it is asked about: then the answer
// does not matter.
const askTimeout = 100 * time.Millisecond

// connectionError says what to do about a connection that cannot be made.
func connectionError(err error) error {
	said := status.Convert(err).Message()
	what := "are the endpoints right, and do both sides agree on TLS?"
	const noTLS = "the server does not speak TLS on this port: write etcd:// in a URL, or give the client no TLS"
	// A server that refuses a certificate hangs up, and what it says of that is often lost.
	const hangsUp = "the server hangs up: does it speak TLS on this port (etcds:// in a URL), and does it want a client certificate, or another one (tls_cert and tls_key)?"
	for _, r := range []struct{ part, what string }{
		{"failed to verify certificate", "trust the authority of the servers' certificates (tls_ca in a URL), and connect by a name that they have (or server_name)"},
		{"first record does not look like a TLS handshake", noTLS},
		{"authentication handshake failed: EOF", noTLS},
		{"remote error: tls: ", "show the servers a client certificate that they accept and that has not expired (tls_cert and tls_key in a URL)"},
		{"broken pipe", hangsUp},
		{"connection reset by peer", hangsUp},
		{"error reading server preface", hangsUp},
		{"connection refused", "nothing listens there: is etcd running, and are the endpoints right?"},
		{"no such host", "are the endpoints right?"},
	} {
		if strings.Contains(said, r.part) {
			what = r.what
			break
		}
	}
	return fmt.Errorf("%s: %s", said, what)
}

// connectionState is Ready if the client does not say.
func (b *backend) connectionState() connectivity.State {
	if conn := b.client.ActiveConnection(); conn != nil {
		return conn.GetState()
	}
	return connectivity.Ready
}
