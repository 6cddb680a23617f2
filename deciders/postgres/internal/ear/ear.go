// Package ear keeps connections that listen for PostgreSQL's notifications. Feeds of one process
// that can share a connection do so.
package ear

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// AnswerTime is how long the server's answer is waited for.
	AnswerTime = 5 * time.Second
	// connectTime is how long connecting may take.
	connectTime = 15 * time.Second
	// closeTime is how long closing a connection may take.
	closeTime = time.Second
)

// ears are the connections that listen, each for all feeds of the Deciders on one pool.
// Here and nowhere else they can find each other: a pool has no place for it. One is here
// while a feed uses it, and no longer.
var ears struct {
	sync.Mutex
	of map[any]*Ear
}

// Ear is a connection that listens. Only its goroutine uses the connection. Its methods may be
// called by several goroutines at once.
type Ear struct {
	Echo  string        // a channel of its own, by which its users hear themselves
	Up    chan struct{} // closed when it is connected, or has failed to be
	Ended chan struct{} // closed when the connection is

	key    any
	users  int // guarded by ears
	cancel context.CancelFunc
	err    error // why it has ended, from then on

	mu    sync.Mutex
	feeds map[string]map[Inbox]bool // by channel
	queue []command
	wake  context.CancelFunc // ends the wait for a notification, if there is one
}

// command is SQL, and what became of it.
type command struct {
	sql  string
	done chan<- error
}

// Join returns the connection for this key, shared by all callers with the same key. It need not be
// up yet. Leave it when you no longer need it.
func Join(key any, connect func(context.Context) (*pgx.Conn, error)) *Ear {
	ears.Lock()
	defer ears.Unlock()
	if ears.of == nil {
		ears.of = map[any]*Ear{}
	}
	e := ears.of[key]
	if e == nil {
		ctx, cancel := context.WithCancel(context.Background())
		e = &Ear{key: key, cancel: cancel, Echo: "leaderelection_echo_" + strings.ToLower(rand.Text()),
			Up: make(chan struct{}), Ended: make(chan struct{}), feeds: map[string]map[Inbox]bool{}}
		ears.of[key] = e
		go e.run(ctx, connect)
	}
	e.users++
	return e
}

// Err is why the connection has ended, once it has.
func (e *Ear) Err() error { return e.err }

// Leave ends a feed's use. The last one to leave waits until the connection is closed.
func (e *Ear) Leave(in Inbox) {
	e.Unsubscribe(in)
	ears.Lock()
	e.users--
	last := e.users == 0
	if last {
		e.forget()
	}
	ears.Unlock()
	if last {
		e.cancel()
		<-e.Ended
	}
}

// forget makes the next user connect again. Ears is locked.
func (e *Ear) forget() {
	if ears.of[e.key] == e {
		delete(ears.of, e.key)
	}
}

// run connects, and hands on what is heard until the connection breaks, or nobody uses
// it any more.
func (e *Ear) run(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) {
	defer func() {
		ears.Lock()
		e.forget()
		ears.Unlock()
		close(e.Ended)
	}()
	conn, err := connectWithin(ctx, connect)
	e.err = err
	if close(e.Up); err != nil {
		return
	}
	defer Close(conn)
	for {
		waiting, cancel := context.WithCancel(ctx)
		e.mu.Lock()
		queue := e.queue
		e.queue, e.wake = nil, cancel
		e.mu.Unlock()
		for _, c := range queue {
			c.done <- exec(ctx, conn, c.sql)
		}
		n, err := conn.WaitForNotification(waiting)
		woken := waiting.Err() != nil
		cancel()
		switch {
		case err == nil:
			e.deliver(n)
		case ctx.Err() != nil || !woken || conn.IsClosed():
			e.err = err
			return
		}
	}
}

// connectWithin bounds how long a server that accepts and says nothing is waited for.
func connectWithin(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) (*pgx.Conn, error) {
	dialling, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	conn, err := connect(dialling)
	if err != nil && dialling.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no connection to listen on within %v: %w", connectTime, err)
	}
	return conn, err
}

// exec runs commands of the simple protocol, all in one round trip.
func exec(ctx context.Context, conn *pgx.Conn, commands string) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	return conn.PgConn().Exec(ctx, commands).Close()
}

// Close closes a connection on which somebody may have listened.
func Close(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if !conn.IsClosed() {
		// Through a pooler the session outlives the connection, and must not go
		// on listening.
		_ = conn.PgConn().Exec(ctx, "UNLISTEN *").Close()
	}
	_ = conn.Close(ctx)
}

// deliver hands a notification to the feeds that listen to its channel.
func (e *Ear) deliver(n *pgconn.Notification) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for in := range e.feeds[n.Channel] {
		in.hear(n)
	}
}

// Do runs commands on the connection. Empty ones show whether the server is there.
func (e *Ear) Do(ctx context.Context, sql string) error {
	e.mu.Lock()
	done := e.put(sql)
	e.mu.Unlock()
	return e.await(ctx, done)
}

// put adds commands to those to run. E.mu is locked.
func (e *Ear) put(sql string) <-chan error {
	done := make(chan error, 1)
	e.queue = append(e.queue, command{sql, done})
	if e.wake != nil {
		e.wake()
	}
	return done
}

func (e *Ear) await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-e.Ended:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Subscribe makes in receive what is notified on these channels from now on.
func (e *Ear) Subscribe(ctx context.Context, in Inbox, channels ...string) error {
	e.mu.Lock()
	var sql strings.Builder
	for _, c := range channels {
		if e.feeds[c] == nil {
			e.feeds[c] = map[Inbox]bool{}
		}
		e.feeds[c][in] = true
		sql.WriteString("LISTEN " + pgx.Identifier{c}.Sanitize() + ";") // even if another has: its LISTEN may be on its way
	}
	done := e.put(sql.String())
	e.mu.Unlock()
	return e.await(ctx, done)
}

// Unsubscribe ends that, without channels for all. It does not wait.
func (e *Ear) Unsubscribe(in Inbox, channels ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(channels) == 0 {
		for c, feeds := range e.feeds {
			if feeds[in] {
				channels = append(channels, c)
			}
		}
	}
	for _, c := range channels {
		if delete(e.feeds[c], in); len(e.feeds[c]) == 0 {
			delete(e.feeds, c)
			e.put("UNLISTEN " + pgx.Identifier{c}.Sanitize())
		}
	}
}

// Inbox is what a feed hears: notifications, or nil after some were left out.
type Inbox chan *pgconn.Notification

// NewInbox returns one that holds at most 32 notifications, and then drops the older ones.
func NewInbox() Inbox { return make(Inbox, 32) }

// hear takes in a notification, and never waits.
func (in Inbox) hear(n *pgconn.Notification) {
	for {
		select {
		case in <- n:
			return
		default:
		}
		for len(in) > 0 {
			select {
			case <-in:
			default:
			}
		}
		n = nil
	}
}
