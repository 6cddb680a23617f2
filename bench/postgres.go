package main

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// advisoryLock waits for a lock of PostgreSQL in a session of its own, and leads for as long as the
// session answers. The server ends a session in which nothing has been asked for a lease: by
// default it would keep the lock of a machine that is cut off for hours.
func advisoryLock(ctx context.Context, s seat, lead func(belief)) error {
	config, err := pgx.ParseConfig("postgres://postgres@" + s.Addr + "/postgres?sslmode=disable")
	if err != nil {
		return err
	}
	config.RuntimeParams["idle_session_timeout"] = strconv.FormatInt(s.Term.Milliseconds(), 10)
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return writes{c, s}, nil
	}
	session, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = session.Close(ctx) // the server ends what it does not hear of
	}()
	if _, err := session.Exec(ctx, "select pg_advisory_lock(hashtextextended($1, 0))", s.Key); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	held, drop := context.WithCancel(ctx)
	defer drop()
	lead(belief{told: func() bool { return held.Err() == nil }})
	tick := time.NewTicker(s.Term / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		asked, cancel := context.WithTimeout(ctx, s.Term/3)
		_, err := session.Exec(asked, "select")
		cancel()
		if err != nil && ctx.Err() == nil {
			return errors.Join(errors.New("the session is lost, and the lock with it"), err)
		}
	}
}
