package zookeeper

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

var (
	errNotZooKeeper = errors.New("this is not how ZooKeeper responds to such a request: does something else answer?")
	errReplaced     = errors.New("the znode was deleted and made again while it was read")
	errClosed       = errors.New("the Decider was closed")
	errCounted      = store.Wrong("the znode was written 2 to the 31 times, and its version cannot count further: stop all candidates, delete the znode, " +
		"and put a vacant record in its place")
)

// permanent are the errors that no retry can cure.
func (b *backend) permanent() store.Remedies {
	return store.Remedies{
		{Err: errClosed, Advice: "keep it open while the election goes on"},
		{Err: zk.ErrNoAuth, Advice: "candidates need the permissions create (of the parent), read and write, by the znode's ACL (zkCli.sh getAcl); " +
			"give the connection its credentials (user:password@ in an address)", Denied: true},
		{Err: zk.ErrAuthFailed, Advice: "check the credentials", Denied: true},
		{Err: zk.ErrInvalidACL, Advice: "an ACL for the owner needs a connection with credentials (user:password@ in an address)"},
		{Err: zk.ErrNoChildrenForEphemerals, Advice: "the parent is an ephemeral znode, which can have no children: name another path"},
		{Err: zk.ErrNoNode, Advice: fmt.Sprintf("the parent of %s is missing: make it, or set Options.CreateParents (create=true in an address)", b.path)},
	}
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	if v := b.permanent().Judge(err); v != (store.Verdict{}) {
		return v
	}
	switch {
	case store.BadCertificate(err):
		return store.Permanent("check the server's certificate and tls_ca")
	case errors.Is(err, zk.ErrNoServer):
		return store.Passing("no server answers, or none of them has a quorum")
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrSessionExpired), errors.Is(err, zk.ErrSessionMoved):
		return store.Passing("the connection broke, so the outcome is not known")
	case strings.Contains(err.Error(), "-125"):
		return store.Passing("a quota is exceeded (zkCli.sh listquota)")
	}
	return store.Verdict{}
}
