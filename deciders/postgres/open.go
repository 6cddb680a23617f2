package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/redact"
)

// What Open sets where the address does not say otherwise, so that an outage keeps
// neither the connections nor a candidate busy for longer than it lasts.
const (
	connectTimeout = 5 * time.Second
	pingTimeout    = 5 * time.Second
	maxConns       = 10 // of which mostly one is open; those that broke count until they are closed
	// pingAfter is how long a connection was idle before it is tried out first,
	// which costs a round trip: a leader extends more often than that.
	pingAfter = 30 * time.Second
)

// Open returns a handle on the election that u names, with a pool of its own, which
// Close closes:
//
//	postgres://user@host:5432/database?election=web
//	postgresql://pooler:6432/database?election=web&listen_url=postgres%3A%2F%2Fdb%2Fdatabase
//
// The parameter election is required. Others are table ("leaderelection" where it is
// left out), create=true for Options.CreateTable, feed_silence, listen_url for
// Options.Listen, listen=false for Options.NoListen, and those of
// pgxpool.ParseConfig, such as sslmode, sslrootcert, channel_binding or
// pool_max_conns. What the address leaves out is taken from PGHOST, PGUSER,
// PGPASSWORD, ~/.pgpass and the others that libpq knows; connect_timeout is then 5 s
// and pool_max_conns 10. It does not connect.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("leaderelection/postgres: the address %s: %w: %w", redact.URL(u.String()), redact.Error(err, u.String()), leaderelection.ErrPermanent)
	}
	return d, nil
}

// known are the parameters of pgx's that an address may have. PostgreSQL takes any
// other one for a setting of the session, and refuses it only when connecting.
var known = map[string]bool{
	"host": true, "port": true, "database": true, "user": true, "password": true, "passfile": true, "connect_timeout": true,
	"sslmode": true, "sslkey": true, "sslcert": true, "sslcertmode": true, "sslrootcert": true, "sslpassword": true, "sslsni": true,
	"sslnegotiation": true, "channel_binding": true, "require_auth": true, "krbspn": true, "krbsrvname": true,
	"min_protocol_version": true, "max_protocol_version": true,
	"target_session_attrs": true, "service": true, "servicefile": true, "application_name": true, "search_path": true, "options": true,
	"default_query_exec_mode": true, "statement_cache_capacity": true, "description_cache_capacity": true,
	"pool_max_conns": true, "pool_min_conns": true, "pool_min_idle_conns": true, "pool_max_conn_lifetime": true, "pool_max_conn_idle_time": true,
	"pool_health_check_period": true, "pool_max_conn_lifetime_jitter": true, "pool_ping_timeout": true,
}

func open(ctx context.Context, u *url.URL) (*Decider, error) {
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, fmt.Errorf("the scheme is %q, and must be postgres", u.Scheme)
	}
	if u.Opaque != "" || u.Host == "" && u.Path == "" {
		return nil, errors.New("it must begin with postgres:// and name a host or a database")
	}
	if u.Fragment != "" {
		return nil, errors.New("a # must be written %23")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for _, name := range []string{"election", "table", "create", "feed_silence", "listen_url", "listen"} {
		if len(q[name]) > 1 {
			return nil, fmt.Errorf("parameter %q is given twice", name)
		}
		own[name] = q.Get(name)
		q.Del(name)
	}
	for name, values := range q {
		if !known[name] {
			return nil, fmt.Errorf("parameter %q is unknown", name)
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("parameter %q is given twice", name)
		}
	}
	if own["election"] == "" {
		return nil, errors.New("it lacks the parameter election: add ?election=name")
	}
	if own["table"] == "" {
		own["table"] = "leaderelection"
	}
	opts, err := options(own)
	if err != nil {
		return nil, err
	}
	rest := *u
	rest.RawQuery = q.Encode()
	pool, err := newPool(ctx, &rest, q.Has("pool_max_conns"))
	if err != nil {
		return nil, err
	}
	d := NewDecider(pool, own["table"], own["election"], opts)
	d.close = pool.Close
	return d, nil
}

func newPool(ctx context.Context, u *url.URL, sized bool) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, err
	}
	Prepare(config)
	if !sized {
		config.MaxConns = maxConns
	}
	return pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
}

// patient bounds how long a connection may take to be made, where the address or the
// environment does not.
func patient(config *pgx.ConnConfig) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
}

func options(q map[string]string) (*Options, error) {
	var opts Options
	var err error
	if v := q["create"]; v != "" {
		if opts.CreateTable, err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("parameter %q: %w", "create", err)
		}
	}
	if v := q["listen"]; v != "" {
		listen, err := strconv.ParseBool(v)
		if err != nil {
			return nil, fmt.Errorf("parameter %q: %w", "listen", err)
		}
		opts.NoListen = !listen
	}
	if v := q["feed_silence"]; v != "" {
		if opts.FeedSilence, err = time.ParseDuration(v); err != nil || opts.FeedSilence <= 0 {
			return nil, fmt.Errorf("parameter %q: %q is no positive duration", "feed_silence", v)
		}
	}
	if v := q["listen_url"]; v != "" {
		config, err := pgx.ParseConfig(v)
		if err != nil {
			return nil, fmt.Errorf("parameter %q: %w", "listen_url", err)
		}
		patient(config)
		opts.Listen = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config) }
	}
	return &opts, nil
}
