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
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

const (
	// echoTime is how long the feed waits to hear itself.
	echoTime = 2 * time.Second
	// answerTime is how long it waits for the server's answer.
	answerTime = 5 * time.Second
	// connectTime is how long connecting may take.
	connectTime = 15 * time.Second
	// closeTime is how long closing a connection may take.
	closeTime = time.Second
	// refusedTime is after how long the feed tries again where LISTEN was refused: a
	// standby may have been promoted.
	refusedTime = 15 * time.Second
	// deafTime is the same where it has heard nothing of itself.
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

// Changes implements leaderelection.ChangeFeed, by LISTEN on a connection beside the pool.
// It fails when that breaks, when the server does not answer after a silence, where it
// does not hear itself, because a transaction pooler is in between, and where the server
// refuses LISTEN, as a standby does. In the last two cases it fails once. Later feeds of
// this handle stay silent until one can listen, so that the record is polled and nothing
// is logged over and over. The
// feeds of all Deciders on one pool share one connection that listens.
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
		closeListening(conn)
		return nil, err
	}
	return conn, nil
}

// follow returns nil where the loop was left.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	at, err := d.b.find(ctx)
	if err != nil {
		return err
	}
	l := &listener{d: d, ear: joinEar(d.b.earKey(), d.b.connect), hello: at.hello(d.b.election), inbox: make(chan *pgconn.Notification, inboxSize)}
	defer l.ear.leave(l)
	if err := l.begin(ctx); err != nil {
		return err
	}
	last, err := l.read(ctx, answerTime)
	if err != nil {
		return err
	}
	given := *last
	for yield(last) {
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

// listener is what a feed hears.
type listener struct {
	d       *Decider
	ear     *ear
	inbox   chan *pgconn.Notification // nil: something was left out
	hello   string
	channel string // the row's, empty where there is none
}

// inboxSize is how much a feed may be behind before it reads instead.
const inboxSize = 32

// hear takes in a notification, and never waits.
func (l *listener) hear(n *pgconn.Notification) {
	for {
		select {
		case l.inbox <- n:
			return
		default:
		}
		for len(l.inbox) > 0 {
			select {
			case <-l.inbox:
			default:
			}
		}
		n = nil
	}
}

// begin listens where rows are made, and makes sure that something is heard: by a
// notification of its own, which goes through the pool.
func (l *listener) begin(ctx context.Context) error {
	select {
	case <-l.ear.up:
	case <-ctx.Done():
		return ctx.Err()
	}
	echo, word := l.ear.echo, rand.Text()
	asking, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := l.ear.subscribe(asking, l, l.hello, echo); err != nil {
		switch code(err) {
		case "25006", "0A000", "42601", "42501": // a standby; a server that has it not, or does not know it, or not for all
			l.d.b.deafen(refusedTime)
			err = fmt.Errorf("%w: %w", err, errDeaf)
		}
		return l.unanswered(ctx, asking, err)
	}
	defer l.ear.unsubscribe(l, echo)
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
		case <-l.ear.ended:
			return l.ear.err
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			l.d.b.deafen(deafTime)
			return fmt.Errorf("nothing is heard on the connection that listens, as where a transaction pooler is in between: %w", errDeaf)
		}
	}
}

// deafen makes later feeds of this handle silent for a while.
func (b *backend) deafen(during time.Duration) { b.deaf.Store(time.Now().Add(during).Unix()) }

// errDeaf is what a feed fails with once where it cannot listen.
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
		if err := l.ear.subscribe(asking, l, channel); err != nil {
			return nil, l.unanswered(ctx, asking, err)
		}
		if l.channel != "" {
			l.ear.unsubscribe(l, l.channel)
		}
		l.channel = channel
	}
}

// unanswered says of an error that the server was waited for in vain, where it was.
func (l *listener) unanswered(ctx, asking context.Context, err error) error {
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
		return l.read(ctx, answerTime)
	case <-l.ear.ended:
		return nil, l.ear.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-silence.C:
	}
	patience := min(answerTime, l.d.b.opts.FeedSilence)
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := l.ear.do(asking, ""); err != nil { // on the connection that listens, and by the pool
		return nil, fmt.Errorf("after a silence: %w", l.unanswered(ctx, asking, err))
	}
	e, err := l.read(ctx, patience)
	if err != nil {
		return nil, fmt.Errorf("after a silence: %w", err)
	}
	return e, nil
}

// pushed is the record in a notification, or nil where it is to be read: it is too
// long for that, or not the row's, or not in order.
func (l *listener) pushed(n *pgconn.Notification) *leaderelection.RaceEntry {
	if n == nil {
		return nil
	}
	head, text, whole := strings.Cut(n.Payload, "\n")
	at, version, _ := strings.Cut(head, " ")
	micros, err := strconv.ParseInt(at, 10, 64)
	if n.Channel != l.channel || !whole || version == "" || err != nil {
		return nil
	}
	e, err := l.d.election.Entry(store.Stored[token]{Data: []byte(text), At: token{version, micros}})
	if err != nil {
		return nil
	}
	return e
}
