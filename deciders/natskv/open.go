package natskv

import (
	"context"
	"net/url"

	"github.com/nats-io/nats.go"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/natskv/internal/dial"
	"github.com/c8e606e4/leaderelection/internal/clients"
)

// Open connects to NATS and returns a Decider that owns the connection: Close it.
// The URL is
//
//	nats://[user:password@|token@]host[:port]/bucket/key?parameter=value&...
//
// The key may have slashes. An unknown parameter, and one given twice, is an error;
// each is optional:
//
//	server        a further server's host:port; may be given several times
//	context       a context of the nats command line, for whatever the URL does
//	              not say itself; the host may then be left out: nats:///b/k?context=prod
//	creds         a file with a user's JWT and seed
//	nkey          a file with a user's nkey seed
//	tls           true: the connection must be encrypted; the three below imply it
//	tls_ca        a file with the authorities to trust in place of the system's
//	tls_cert      a file with this client's certificate, and
//	tls_key       one with its key
//	inbox_prefix  what the subjects of answers begin with, in place of _INBOX
//	domain        the JetStream domain that has the bucket
//	create        true: make the bucket where there is none, with
//	replicas      1 to 5 copies (default 1; take 3 in a cluster),
//	storage       file (default) or memory, and
//	description   a text for it
//
// Open fails if no server can be reached before ctx ends, or refuses the user
// (an ErrPermanent); later the connection is restored whenever it is lost, also by a
// server that refuses the user for a while. Its files are read again each time, and of a context the
// user, the password and the token. Nats.go keeps the public key of an nkey: another one takes a
// restart. The first call of the Decider says what is wrong with the bucket.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, store.NotOpened("natskv", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (*Decider, error) {
	target, err := dial.Parse(u)
	if err != nil {
		return nil, store.WrongURL(err)
	}
	nc, done, err := clients.Open(ctx, target.Connection(), func(ctx context.Context) (*nats.Conn, func() error, error) {
		nc, err := target.Connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		return nc, func() error { nc.Close(); return nil }, nil
	})
	if err != nil {
		return nil, err
	}
	js, err := target.JetStream(nc)
	if err != nil {
		_ = done()
		return nil, store.WrongURL(err)
	}
	d := NewDecider(js, target.Bucket, target.Key, &Options{Create: target.Create})
	d.close = done
	return d, nil
}

// ConnectOptions returns what a connection should have that elections depend on,
// for nats.Connect; one's own options may follow.
//
// With them it never gives up. By itself nats.go stops for good after sixty attempts,
// and when a server has refused the user twice, as while a password is changed. It
// also leaves a server that has fallen silent after four seconds, in place of six
// minutes, and waits for a second between attempts.
func ConnectOptions() []nats.Option { return dial.Options() }
