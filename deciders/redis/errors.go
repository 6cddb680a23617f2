package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
)

// permanent is an error that no retry can cure.
func permanent(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), leaderelection.ErrPermanent)
}

var errForeign = permanent("it is a hash, and not a record of this library (no fields \"record\" and \"version\"): name another key, or delete it")

// failed says what was being done, to which key, and what to do about it.
func (d *Decider) failed(ctx context.Context, doing string, err error) error {
	if errors.Is(err, leaderelection.ErrLostRace) {
		return err
	}
	switch ended := ctx.Err(); {
	case ended != nil && errors.Is(err, ended), ended == nil && timedOut(err):
		err = fmt.Errorf("given up before the server has answered: %w", err)
	case ended != nil && timedOut(err): // the connection's own deadline was a moment quicker
		err = fmt.Errorf("given up before the server has answered: %w: %w", ended, err)
	case ended != nil:
		// The client has its own words for it, or a pool was closed under it.
		err = fmt.Errorf("%w: %w", ended, err)
	default:
		err = explain(err)
	}
	return fmt.Errorf("leaderelection/redis: %s %s: %w", doing, d.place(), err)
}

// refusals are the errors of the server that no retry can cure, by a part of
// their text (a script's errors begin with other words in older servers), and
// what to do.
var refusals = []struct{ part, advice string }{
	{"WRONGTYPE", "the key holds something else: name another, or delete it"},
	{"NOAUTH", "the server demands a password: give the client one"},
	{"WRONGPASS", "the server does not know this user and password"},
	{"invalid username-password pair", "the server does not know this user and password"},
	{"AUTH <password> called without", "the server has no password for this user: give the client none, or set one"},
	{"no password is set", "the server has no password: give the client none, or set one"},
	{"NOPERM", "the user's ACL lacks something: see Permissions in the package's documentation"},
	{"can't run this command or subcommand", "the user's ACL lacks something: see Permissions in the package's documentation"},
	{"can't access at least one of the keys", "the user's ACL lacks the key: see Permissions in the package's documentation"},
	{"MOVED ", "this is a Cluster: use redis.NewClusterClient (cluster=true in an address)"},
	{"DB index is out of range", "choose another database"},
	{"SELECT is not allowed in cluster mode", "a Cluster has database 0 only"},
	{"unknown command", "this server, or the proxy before it, lacks a command that is needed: use Redis 5 or later, directly"},
	{"Write commands not allowed after non deterministic commands", "the server is too old: use Redis 5 or later"},
}

// explain adds what to do about an error, and whether trying again can help.
func explain(err error) error {
	var server redis.Error
	var hostname x509.HostnameError
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil || errors.Is(err, leaderelection.ErrPermanent):
		return err
	case errors.Is(err, redis.ErrClosed):
		return permanent("%w: the client was closed; keep it open while the election goes on", err)
	case errors.As(err, &hostname), errors.As(err, &authority), errors.As(err, &certificate):
		return permanent("%w: check the server's certificate and the client's TLSConfig", err)
	case errors.As(err, &server):
		for _, r := range refusals {
			if strings.Contains(server.Error(), r.part) {
				return permanent("%w: %s", err, r.advice)
			}
		}
		if strings.Contains(server.Error(), "READONLY") {
			return fmt.Errorf("%w: this is a replica, or has just become one: name the master, or use Sentinel or Cluster to find it", err)
		}
	}
	return err
}

// moved says that the server is not, or no longer, the key's master.
func moved(err error) bool {
	var server redis.Error
	return errors.As(err, &server) && (strings.HasPrefix(server.Error(), "MOVED ") || strings.Contains(server.Error(), "READONLY"))
}
