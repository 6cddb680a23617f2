package rethinkdb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
)

// defaultTimeout is how long Open's session waits for a server: to connect, and to
// answer where the driver itself waits.
const defaultTimeout = 5 * time.Second

// Open returns the election that u names, with a session of its own, which Close closes:
//
//	rethinkdb://user:password@host:28015,host:28015/database/table/election
//
// A port that is left out is 28015. The election's name is all that follows the table; a
// slash in it is part of it. Query parameters, all optional:
//
//	tls=true          connect with TLS; the three below imply it
//	cacert=FILE       the authorities of the servers' certificates, PEM (else the system's)
//	cert=FILE         a client certificate, PEM
//	cert_key=FILE     its key, PEM
//	timeout=5s        how long to wait for a server to connect, or to say that it has stopped
//	discover=true     also use the cluster's other servers, as it names them
//	create=true       make the database and the table where they are missing
//	replicas=3        of a table that is made; 1 unless it is given
//
// Open connects: it needs a server that answers before ctx ends. Any other parameter is
// an error, and so is whatever makes a URL useless.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	p, err := parse(u)
	if err != nil {
		return nil, fmt.Errorf("leaderelection/rethinkdb: %s: %w: %w", redacted(u), err, leaderelection.ErrPermanent)
	}
	d := NewDecider(nil, p.database, p.table, p.election, nil)
	session, err := connect(ctx, p.connect)
	if err != nil {
		return nil, d.failed(ctx, "connecting to "+strings.Join(p.connect.Addresses, ",")+" for", err)
	}
	d.session = session
	d.close = func() error {
		if err := session.Close(); err != nil {
			return fmt.Errorf("leaderelection/rethinkdb: closing the session: %w", err)
		}
		return nil
	}
	if p.create {
		if err := d.Create(ctx, p.replicas); err != nil {
			_ = d.Close()
			return nil, err
		}
	}
	return d, nil
}

// connect connects, for no longer than ctx lasts: the driver knows no ctx here.
func connect(ctx context.Context, opts r.ConnectOpts) (*r.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type result struct {
		session *r.Session
		err     error
	}
	done := make(chan result, 1)
	go func() {
		s, err := r.Connect(opts)
		done <- result{s, err}
	}()
	select {
	case got := <-done:
		return got.session, got.err
	case <-ctx.Done():
		go func() {
			if late := <-done; late.err == nil {
				_ = late.session.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// Create makes the database and the table where they are missing, and waits until the
// table takes writes. A table that it makes has so many replicas, at least 1; an odd
// number above that survives the loss of a minority. It may be called by every candidate
// at its start. It needs the permission config.
func (d *Decider) Create(ctx context.Context, replicas int) error {
	table := r.DB(d.database).Table(d.table)
	for _, term := range []r.Term{
		r.DBCreate(d.database),
		r.DB(d.database).TableCreate(d.table, r.TableCreateOpts{PrimaryKey: "id", Durability: "hard", Replicas: max(1, replicas)}),
		table.Wait(r.WaitOpts{WaitFor: "ready_for_writes"}),
	} {
		if _, err := query[any](ctx, d, term); err != nil && !strings.Contains(err.Error(), "already exists") {
			return d.failed(ctx, "creating the table of", err)
		}
	}
	return nil
}

// parsed is what a URL says.
type parsed struct {
	connect                   r.ConnectOpts
	database, table, election string
	create                    bool
	replicas                  int
}

func parse(u *url.URL) (*parsed, error) {
	path := strings.SplitN(strings.TrimPrefix(u.Path, "/"), "/", 3)
	switch {
	case u.Scheme != "rethinkdb":
		return nil, fmt.Errorf("the scheme is %q; want rethinkdb://host/database/table/election", u.Scheme)
	case u.Host == "" || len(path) != 3 || path[0] == "" || path[1] == "" || path[2] == "":
		return nil, errors.New("want rethinkdb://host/database/table/election")
	case u.Fragment != "":
		return nil, errors.New("a # must be written %23 in a name")
	}
	p := &parsed{database: path[0], table: path[1], election: path[2], replicas: 1}
	for _, host := range strings.Split(u.Host, ",") {
		at := &url.URL{Host: host}
		if at.Hostname() == "" {
			return nil, fmt.Errorf("a host of %q has no name", u.Host)
		}
		if at.Port() == "" {
			host = strings.TrimSuffix(host, ":") + ":28015"
		}
		p.connect.Addresses = append(p.connect.Addresses, host)
	}
	p.connect.Username = u.User.Username()
	p.connect.Password, _ = u.User.Password()
	p.connect.Timeout = defaultTimeout
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	if err := p.parameters(q); err != nil {
		return nil, err
	}
	p.connect.ReadTimeout, p.connect.WriteTimeout = p.connect.Timeout, p.connect.Timeout
	return p, nil
}

// parameters reads the query.
func (p *parsed) parameters(q url.Values) (err error) {
	secure := false
	var cacert, cert, key string
	for name, values := range q {
		if len(values) != 1 || values[0] == "" {
			return fmt.Errorf("parameter %q wants one value", name)
		}
		switch v := values[0]; name {
		case "tls":
			secure, err = strconv.ParseBool(v)
		case "cacert":
			cacert = v
		case "cert":
			cert = v
		case "cert_key":
			key = v
		case "timeout":
			if p.connect.Timeout, err = time.ParseDuration(v); err == nil && p.connect.Timeout <= 0 {
				err = errors.New("it must be positive")
			}
		case "discover":
			p.connect.DiscoverHosts, err = strconv.ParseBool(v)
		case "create":
			p.create, err = strconv.ParseBool(v)
		case "replicas":
			if p.replicas, err = strconv.Atoi(v); err == nil && p.replicas < 1 {
				err = errors.New("it must be positive")
			}
		default:
			err = errors.New("it is unknown; there are tls, cacert, cert, cert_key, timeout, discover, create and replicas")
		}
		if err != nil {
			return fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	if !secure && cacert+cert+key == "" {
		return nil
	}
	p.connect.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if cacert != "" {
		pem, err := os.ReadFile(cacert)
		if err != nil {
			return fmt.Errorf("parameter cacert: %w", err)
		}
		p.connect.TLSConfig.RootCAs = x509.NewCertPool()
		if !p.connect.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("parameter cacert: %s holds no PEM certificate", cacert)
		}
	}
	if cert+key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("parameters cert and cert_key: %w", err)
		}
		p.connect.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// redacted is u without its password, and without parameters.
func redacted(u *url.URL) string {
	c := &url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, Path: u.Path}
	return c.Redacted()
}
