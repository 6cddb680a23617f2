package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/puddle/v2"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/table"
)

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	if c := table.Code(err); c != "" {
		return b.table.Judge(c)
	}
	switch {
	case errors.Is(err, puddle.ErrClosedPool):
		return store.Permanent("keep the pool open while the election goes on")
	case store.BadCertificate(err):
		return store.Permanent("check the server's certificate, sslmode and tls_ca")
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return store.Permanent("switch TLS on at the server, or lower sslmode")
	}
	return store.Verdict{}
}
