package redis

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/redis/internal/lines"
)

var errForeign = store.Wrong("it is a hash, and not a record of this library (no fields \"record\" and \"version\"): name another key, or delete it")

const (
	noPassword  = "the server has no password: give the client none, or set one"
	unknownUser = "the server does not know this user and password"
	aclLacks    = "the user's ACL lacks something: see Permissions in the package's documentation"
)

// remedies are for the errors of the server that no retry can cure, by a part of their
// text: a script's errors begin with other words in older servers.
var remedies = store.Remedies{
	{Part: "WRONGTYPE", Advice: "the key holds something else: name another, or delete it"},
	{Part: "NOAUTH", Advice: "the server demands a password: give the client one", Denied: true},
	{Part: "WRONGPASS", Advice: unknownUser, Denied: true},
	{Part: "invalid username-password pair", Advice: unknownUser, Denied: true},
	{Part: "AUTH <password> called without", Advice: "the server has no password for this user: give the client none, or set one", Denied: true},
	{Part: "no password is set", Advice: noPassword, Denied: true},
	{Part: "NOPERM", Advice: aclLacks, Denied: true},
	{Part: "can't run this command or subcommand", Advice: aclLacks, Denied: true},
	{Part: "can't access at least one of the keys", Advice: "the user's ACL lacks the key: see Permissions in the package's documentation", Denied: true},
	{Part: "MOVED ", Advice: "this is a Cluster: use redis.NewClusterClient (cluster=true in an address)"},
	{Part: "DB index is out of range", Advice: "choose another database"},
	{Part: "SELECT is not allowed in cluster mode", Advice: "a Cluster has database 0 only"},
	{Part: "unknown command", Advice: "this server, or the proxy before it, lacks a command that is needed: use Redis 5 or later, directly"},
	{Part: "Write commands not allowed after non deterministic commands", Advice: "the server is too old: use Redis 5 or later"},
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	var server redis.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return store.Permanent("the client was closed; keep it open while the election goes on")
	case store.BadCertificate(err):
		return store.Permanent("check the server's certificate and the client's TLSConfig")
	case lines.TimedOut(err):
		return store.Passing(b.WhyLate())
	case !errors.As(err, &server):
		return store.Verdict{}
	}
	v := remedies.Judge(server)
	if v == (store.Verdict{}) && strings.Contains(server.Error(), "READONLY") {
		return store.Passing("this is a replica, or has just become one: name the master, or use Sentinel or Cluster to find it")
	}
	return v
}

// WhyLate is said of a call whose ctx, or the client's own time for it, has ended.
func (b *backend) WhyLate() string { return "the server did not answer in time" }
