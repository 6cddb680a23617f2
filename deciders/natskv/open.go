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
// The key may have slashes. All parameters are optional. Unknown and repeated ones are errors:
//
//	server        a further server's host:port; may be given several times
//	context       a context of the nats command line, for whatever the URL does
//	              not say; you may then leave out the host: nats:///b/k?context=prod
//	creds         a file with a user's JWT and seed
//	nkey          a file with a user's nkey seed
//	tls           true: the connection must be encrypted; the three below imply it
//	tls_ca        a file with the authorities to trust in place of the system's
//	tls_cert      a file with this client's certificate, and
//	tls_key       one with its key
//	inbox_prefix  what the subjects of answers begin with, in place of _INBOX
//	domain        the JetStream domain that has the bucket
//	create        true: make the bucket if it is missing, with
//	replicas      1 to 5 copies (default 1; take 3 in a cluster),
//	storage       file (default) or memory, and
//	description   a text for it
//
// Open fails if it reaches no server before ctx ends, or if a server refuses the user (an
// ErrPermanent). Later a lost connection is always restored, even if a server refuses the user for
// a while. Each time the files are read again, and of a context the user, the password and the
// token. nats.go keeps the public key of an nkey: another key needs a restart. The first call of
// the Decider says what is wrong with the bucket.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, store.NotOpened("natskv", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (*Decider, error) {
	target, err := dial.Parse(u)
	if err == nil {
		err = checkNames(target.Bucket, target.Key)
	}
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

// ConnectOptions returns options for nats.Connect that elections need. Yours may follow. With them
// the connection never gives up. By itself nats.go stops for good after sixty attempts, and when a
// server has refused the user twice, for example while a password is changed. It also leaves a
// silent server after four seconds instead of six minutes, and waits for a second between attempts.
func ConnectOptions() []nats.Option { return dial.Options() }
