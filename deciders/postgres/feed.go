package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
)

const (
	// echoTime is how long the feed waits to hear itself.
	echoTime = 2 * time.Second
	// answerTime is how long it waits for the server's answer after a silence.
	answerTime = 5 * time.Second
	// closeTime is how long closing a connection may take.
	closeTime = time.Second
	// deafTime is for how long the feed does not try again, having heard nothing
	// of itself.
	deafTime = 10 * time.Minute
	// maxPayload is how many bytes a notification carries, with a little to spare
	// of the 8000 that PostgreSQL allows.
	maxPayload = 7900
)

// A row's changes are notified on a channel of its own, which is kept in the row and
// cannot be guessed: PostgreSQL lets every user of a database listen and notify on
// every channel. That a row was made is said, and no more than that, on a channel
// that is known.

// newChannel is for a new row.
func newChannel() string { return "leaderelection_" + strings.ToLower(rand.Text()) }

// hello is where it is said that the row was made. It is of the table's full name,
// since channels are a whole database's, and not longer than names may be.
func (p *place) hello(election string) string {
	sum := sha256.Sum256([]byte(p.schema + "\x00" + p.table + "\x00" + election))
	return fmt.Sprintf("leaderelection_%x", sum[:16])
}

// payload is what an update's notification says, after its time. A record that is too
// long is left out, and read by those who follow.
func payload(version string, data []byte) string {
	if len(data)+len(version) > maxPayload {
		return version
	}
	return version + "\n" + string(data)
}

// Changes implements leaderelection.ChangeFeed, by LISTEN on a connection of its own.
// It fails when that breaks, when the server does not answer after a silence, and
// where it does not hear itself, because a transaction pooler is in between. In that
// case later feeds stay silent for ten minutes, so that the record is polled and
// nothing is logged over and over.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		if !d.listening(ctx) {
			return
		}
		if err := d.follow(ctx, yield); err != nil && ctx.Err() == nil {
			yield(nil, d.failed(ctx, "following", err))
		}
	}
}

// listening waits until there may be a use in listening; false: ctx ended first.
func (d *Decider) listening(ctx context.Context) bool {
	if _, ok := d.db.(pool); d.opts.NoListen || d.opts.Listen == nil && !ok {
		<-ctx.Done()
	} else if until := d.deaf.Load(); until != 0 {
		timer := time.NewTimer(time.Until(time.Unix(until, 0)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// pool is what says how to connect.
type pool interface{ Config() *pgxpool.Config }

// connect opens the feed's own connection, as the pool would: one out of the pool
// would be one that has served already, and is needed there when it is time to write.
func (d *Decider) connect(ctx context.Context) (*pgx.Conn, error) {
	if d.opts.Listen != nil {
		return d.opts.Listen(ctx)
	}
	config := d.db.(pool).Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil || config.AfterConnect == nil {
		return conn, err
	}
	if err := config.AfterConnect(ctx, conn); err != nil {
		(&listener{conn: conn}).close(ctx)
		return nil, err
	}
	return conn, nil
}

// follow returns nil where the loop was left.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry, error) bool) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	l := &listener{d: d, conn: conn, hello: d.found.Load().hello(d.election)}
	defer l.close(ctx)
	if err := l.begin(ctx); err != nil {
		return err
	}
	last, err := l.read(ctx)
	if err != nil {
		return err
	}
	given := *last
	for yield(last, nil) {
		for last = nil; last == nil; {
			e, err := l.next(ctx)
			if err != nil {
				return err
			}
			if e.Token != given.Token && e.Compare(&given) >= 0 { // else read before it was notified
				last = e
			}
		}
		given = *last
	}
	return nil
}

// listener is a feed's connection.
type listener struct {
	d       *Decider
	conn    *pgx.Conn
	hello   string
	channel string // the row's, empty where there is none
}

func (l *listener) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if !l.conn.IsClosed() {
		// Through a pooler the session outlives the connection, and must not go
		// on listening.
		_ = l.do(ctx, "UNLISTEN *")
	}
	_ = l.conn.Close(ctx)
}

// begin listens where rows are made, and makes sure that something is heard: by a
// notification of its own, which goes through the pool.
func (l *listener) begin(ctx context.Context) error {
	echo, word := l.hello+"_echo", rand.Text()
	if err := l.do(ctx, "LISTEN "+l.hello+"; LISTEN "+echo); err != nil {
		return err
	}
	if _, err := l.d.db.Exec(ctx, "SELECT pg_catalog.pg_notify($1::text, $2::text)", l.d.mode, echo, word); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, echoTime)
	defer cancel()
	for {
		n, err := l.conn.WaitForNotification(waiting)
		switch {
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			l.d.deaf.Store(time.Now().Add(deafTime).Unix())
			return errors.New("nothing is heard on the connection that listens, as where a transaction pooler is in between, so the record is polled: give Options.Listen a direct connection (listen_url in an address), or set Options.NoListen (listen=false)")
		case err != nil:
			return err
		case n.Payload == word:
			l.d.deaf.Store(0)
			return l.do(ctx, "UNLISTEN "+echo)
		}
		// A new row: it will be read.
	}
}

// do runs commands of the simple protocol, all in one round trip. Names of channels
// have no letters that must be quoted.
func (l *listener) do(ctx context.Context, commands string) error {
	return l.conn.PgConn().Exec(ctx, commands).Close()
}

// read returns the row, having made sure that what happens to it later is heard.
func (l *listener) read(ctx context.Context) (*leaderelection.RaceEntry, error) {
	for {
		e, channel, err := l.d.read(ctx, l.conn)
		if err != nil || channel == "" || channel == l.channel {
			return e, err
		}
		// A row that this connection does not listen to yet: nothing is known
		// of what happened to it between the reading and the listening.
		commands := "LISTEN " + pgx.Identifier{channel}.Sanitize()
		if l.channel != "" {
			commands += "; UNLISTEN " + pgx.Identifier{l.channel}.Sanitize()
		}
		if err := l.do(ctx, commands); err != nil {
			return nil, err
		}
		l.channel = channel
	}
}

// next returns what is notified next, or what is read after a silence, which shows
// whether the server is there.
func (l *listener) next(ctx context.Context) (*leaderelection.RaceEntry, error) {
	quiet, cancel := context.WithTimeout(ctx, l.d.opts.FeedSilence)
	n, err := l.conn.WaitForNotification(quiet)
	silent := quiet.Err() != nil
	cancel()
	switch {
	case err == nil:
		if e := l.pushed(n); e != nil {
			return e, nil
		}
		return l.read(ctx)
	case ctx.Err() != nil || !silent || l.conn.IsClosed():
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, min(answerTime, l.d.opts.FeedSilence))
	defer cancel()
	e, err := l.read(asking)
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("the server does not answer after a silence: %w", err)
	}
	return e, err
}

// pushed is the record in a notification, or nil where it is to be read: it is too
// long for that, or not the row's, or not in order.
func (l *listener) pushed(n *pgconn.Notification) *leaderelection.RaceEntry {
	head, text, whole := strings.Cut(n.Payload, "\n")
	at, version, _ := strings.Cut(head, " ")
	micros, err := strconv.ParseInt(at, 10, 64)
	if n.Channel != l.channel || !whole || version == "" || err != nil {
		return nil
	}
	e, err := l.d.entry(token{version, micros}, text)
	if err != nil {
		return nil
	}
	return e
}
