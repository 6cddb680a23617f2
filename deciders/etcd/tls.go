package etcd

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// renewing is gRPC's TLS with files that are read for each connection: etcd's client
// reads the authorities once.
type renewing struct {
	credentials.TransportCredentials // by the files as they were at first
	files                            store.TLSFiles
	latest                           *atomic.Pointer[credentials.TransportCredentials]
}

// newRenewing returns credentials by these files, which it reads now and for each connection.
func newRenewing(files store.TLSFiles) (credentials.TransportCredentials, error) {
	cfg, err := files.Load()
	if err != nil {
		return nil, err
	}
	r := &renewing{TransportCredentials: credentials.NewTLS(cfg), files: files, latest: &atomic.Pointer[credentials.TransportCredentials]{}}
	r.latest.Store(&r.TransportCredentials)
	return r, nil
}

// ClientHandshake implements credentials.TransportCredentials. If the files cannot be
// read it goes by those that could last: somebody may be about to renew them.
func (r *renewing) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	cfg, unread := r.files.Load()
	if unread == nil {
		latest := credentials.NewTLS(cfg)
		r.latest.Store(&latest)
	}
	secure, info, err := (*r.latest.Load()).ClientHandshake(ctx, authority, conn)
	if err != nil && unread != nil {
		err = fmt.Errorf("%w, by the files as they were, since now: %w", err, unread)
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials.
func (r *renewing) Clone() credentials.TransportCredentials {
	c := *r
	c.TransportCredentials = r.TransportCredentials.Clone()
	return &c
}
