package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/ear"
)

const (
	// echoTime is how long the feed waits to hear itself.
	echoTime = 2 * time.Second
	// refusedTime is after how long the feed tries again if LISTEN was refused: a
	// standby may have been promoted.
	refusedTime = 15 * time.Second
	// deafTime is the same if it has heard nothing of itself.
	deafTime = 10 * time.Minute
)

// Changes implements leaderelection.ChangeFeed, by LISTEN on a connection outside of the pool, which
// the feeds of all Deciders on one pool share. A feed fails if that connection breaks, or if the server does
// not answer after a silence. It fails once if it does not hear itself, because a transaction pooler is in
// between, or if the server refuses LISTEN, as a standby does. Later feeds of this handle then stay silent
// until one can listen, so that the record is polled and nothing is logged repeatedly.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, func(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
		for d.b.listening(ctx) {
			told := d.b.deaf.Load() != 0
			if err := d.follow(ctx, yield); !told || !errors.Is(err, errDeaf) {
				return err
			}
		}
		return ctx.Err()
	})
}

// listening waits until there may be a use in listening; false: ctx ended first.
func (b *backend) listening(ctx context.Context) bool {
	if _, ok := b.db.(pool); b.opts.NoListen || b.opts.Listen == nil && !ok {
		<-ctx.Done()
	} else if until := b.deaf.Load(); until != 0 {
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
func (b *backend) connect(ctx context.Context) (*pgx.Conn, error) {
	if b.opts.Listen != nil {
		return b.opts.Listen(ctx)
	}
	config := b.db.(pool).Config()
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
		ear.Close(conn)
		return nil, err
	}
	return conn, nil
}

// follow returns nil if the loop was left.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	at, err := d.b.find(ctx)
	if err != nil {
		return err
	}
	l := &listener{d: d, ear: ear.Join(d.b.earKey(), d.b.connect), hello: at.hello(d.b.election), inbox: ear.NewInbox()}
	defer l.ear.Leave(l.inbox)
	if err := l.begin(ctx); err != nil {
		return err
	}
	first, err := l.read(ctx, ear.AnswerTime)
	if err != nil {
		return err
	}
	return store.News(first, func() (*leaderelection.RaceEntry, error) { return l.next(ctx) }, yield)
}

// listener is what a feed hears.
type listener struct {
	d       *Decider
	ear     *ear.Ear
	inbox   ear.Inbox
	hello   string
	channel string // the row's, empty if there is none
}

// begin listens if rows are made, and makes sure that something is heard: by a
// notification of its own, which goes through the pool.
func (l *listener) begin(ctx context.Context) error {
	select {
	case <-l.ear.Up:
	case <-ctx.Done():
		return ctx.Err()
	}
	echo, word := l.ear.Echo, rand.Text()
	asking, cancel := context.WithTimeout(ctx, ear.AnswerTime)
	defer cancel()
	if err := l.ear.Subscribe(asking, l.inbox, l.hello, echo); err != nil {
		switch code(err) {
		case "25006", "0A000", "42601", "42501": // a standby; a server that has it not, or does not know it, or not for all
			l.d.b.deafen(refusedTime)
			err = fmt.Errorf("%w: %w", err, errDeaf)
		}
		return l.unanswered(ctx, asking, err)
	}
	defer l.ear.Unsubscribe(l.inbox, echo)
	if _, err := l.d.b.db.Exec(asking, "SELECT pg_catalog.pg_notify($1::text, $2::text)", l.d.b.mode, echo, word); err != nil {
		return l.unanswered(ctx, asking, err)
	}
	patience := time.NewTimer(echoTime)
	defer patience.Stop()
	for {
		select {
		case n := <-l.inbox:
			if n == nil || n.Payload == word { // what is left out was heard, too
				l.d.b.deaf.Store(0)
				return nil
			}
			// A new row: it will be read. Or another's echo.
		case <-l.ear.Ended:
			return l.ear.Err()
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			l.d.b.deafen(deafTime)
			return fmt.Errorf("no notification arrives on the listening connection (a transaction pooler on the way loses them): %w", errDeaf)
		}
	}
}

// deafen makes later feeds of this handle silent for a while.
func (b *backend) deafen(during time.Duration) { b.deaf.Store(time.Now().Add(during).Unix()) }

// errDeaf is what a feed fails with once if it cannot listen.
var errDeaf = errors.New("the record is polled: connect to the primary, give Options.Listen a direct connection to it (listen_url in an address), or set Options.NoListen (listen=false)")

// read returns the row, having made sure that what happens to it later is heard. It
// waits for the server as long as given.
func (l *listener) read(ctx context.Context, patience time.Duration) (*leaderelection.RaceEntry, error) {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s, channel, err := l.d.b.read(asking)
		if err != nil {
			return nil, l.unanswered(ctx, asking, err)
		}
		if channel == "" || channel == l.channel {
			return l.d.election.Entry(s)
		}
		// A row that is not listened to yet: nothing is known of what happened to it
		// between the reading and the listening.
		if err := l.ear.Subscribe(asking, l.inbox, channel); err != nil {
			return nil, l.unanswered(ctx, asking, err)
		}
		if l.channel != "" {
			l.ear.Unsubscribe(l.inbox, l.channel)
		}
		l.channel = channel
	}
}

// unanswered says of an error that the server was waited for in vain, where it was.
func (l *listener) unanswered(ctx, asking context.Context, err error) error {
	l.d.b.unheard(asking, err)
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("the server does not answer: %w", err)
	}
	return err
}

// next returns what is notified next, or what is read after a silence, which shows
// whether the server is there.
func (l *listener) next(ctx context.Context) (*leaderelection.RaceEntry, error) {
	silence := time.NewTimer(l.d.b.opts.FeedSilence)
	defer silence.Stop()
	select {
	case n := <-l.inbox:
		if e := l.pushed(n); e != nil {
			return e, nil
		}
		return l.read(ctx, ear.AnswerTime)
	case <-l.ear.Ended:
		return nil, l.ear.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-silence.C:
	}
	patience := min(ear.AnswerTime, l.d.b.opts.FeedSilence)
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.ear.Do(asking, ""); err != nil { // on the connection that listens, and by the pool
		return nil, fmt.Errorf("after a silence: %w", l.unanswered(ctx, asking, err))
	}
	e, err := l.read(ctx, patience)
	if err != nil {
		return nil, fmt.Errorf("after a silence: %w", err)
	}
	return e, nil
}

// pushed is the record in a notification, or nil if it is to be read: it is too
// long for that, or not the row's, or not in order.
func (l *listener) pushed(n *pgconn.Notification) *leaderelection.RaceEntry {
	if n == nil {
		return nil
	}
	version, micros, text, whole := parsePayload(n.Payload)
	if n.Channel != l.channel || !whole {
		return nil
	}
	e, err := l.d.election.Entry(store.Stored[token]{Data: []byte(text), At: token{version, micros}})
	if err != nil {
		return nil
	}
	return e
}

// earKey is what Deciders that share a connection have in common.
func (b *backend) earKey() any {
	if b.ear != nil {
		return b.ear
	}
	if b.opts.Listen == nil && reflect.TypeOf(b.key).Kind() == reflect.Pointer {
		return b.key
	}
	return b
}
