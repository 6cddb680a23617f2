package rethinkdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/clients"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// defaultTimeout is how long Open's session waits for a server: to connect, and to
// answer where the driver itself waits.
const defaultTimeout = 5 * time.Second

// Open returns the election that u names, with a session of its own, which Close closes:
//
//	rethinkdb://user:password@host:28015,host:28015/database/table/election
//
// The default port is 28015. The election's name is all that follows the table, even slashes. Query
// parameters, all optional:
//
//	tls=true          connect with TLS; the three below imply it
//	tls_ca=FILE       the authorities of the servers' certificates, PEM (else the system's)
//	tls_cert=FILE     a client certificate, PEM
//	tls_key=FILE      its key, PEM
//	timeout=5s        how long to wait for a server to connect, or to say that it has stopped
//
// Name each server of a cluster. Queries go to one of them, and to the next if that server fails. A
// server that was down is used when it is back. The files are read again for each connection, so
// renewed certificates need no restart. Other parameters are errors. Open connects: it needs one
// server that answers before ctx ends.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	p, err := parse(u)
	if err != nil {
		return nil, store.OpenError("rethinkdb", u, err)
	}
	h, done, err := clients.Open(ctx, fmt.Sprint(p.connect, p.hosts, p.secure, p.files), func(context.Context) (*hosts, func() error, error) {
		h := newHosts(p)
		return h, h.Close, nil
	})
	if err != nil {
		return nil, store.NotOpened("rethinkdb", u, err)
	}
	d := newDecider(h, p.database, p.table, p.election)
	d.close, d.election.Drop = done, h.Drop
	d.election.Place += store.At(strings.Join(p.hosts, ","))
	if _, err := h.Use(ctx); err != nil {
		_ = done()
		return nil, d.election.Failed(ctx, "connecting for", redact.Error(err, u.String()))
	}
	return d, nil
}

// parsed is what a URL says.
type parsed struct {
	connect                   r.ConnectOpts
	hosts                     []string
	secure                    bool
	files                     store.TLSFiles
	database, table, election string
}

func parse(u *url.URL) (*parsed, error) {
	path := strings.SplitN(strings.TrimPrefix(u.Path, "/"), "/", 3)
	switch {
	case u.Scheme != "rethinkdb":
		return nil, fmt.Errorf("the scheme is %q; want rethinkdb://host/database/table/election", u.Scheme)
	case u.Host == "" || len(path) != 3 || slices.Contains(path, ""):
		return nil, errors.New("want rethinkdb://host/database/table/election")
	}
	hosts, err := store.Hosts(u, "28015")
	if err != nil {
		return nil, err
	}
	q, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	p := &parsed{hosts: hosts, database: path[0], table: path[1], election: path[2]}
	p.secure, p.files = q.TLS()
	wait := cmp.Or(q.Duration("timeout"), defaultTimeout)
	p.connect = r.ConnectOpts{Username: u.User.Username(), Timeout: wait, ReadTimeout: wait, WriteTimeout: wait}
	p.connect.Password, _ = u.User.Password()
	if q.Bool("discover") {
		q.Wrong("discover: the driver's discovery ends the process when a server goes away: name each server in the URL instead")
	}
	return p, q.Rest()
}
