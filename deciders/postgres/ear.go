package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ears are the connections that listen, each for all feeds of the Deciders on one pool.
// Here and nowhere else they can find each other: a pool has no place for it. One is here
// while a feed uses it, and no longer.
var ears struct {
	sync.Mutex
	of map[any]*ear
}

// ear is a connection that listens. Its goroutine alone uses it.
type ear struct {
	key    any
	users  int // guarded by ears
	cancel context.CancelFunc
	echo   string        // a channel of its own
	up     chan struct{} // closed when it is connected, or has failed to be
	ended  chan struct{} // closed when the connection is
	err    error         // why it is, from then on

	mu    sync.Mutex
	feeds map[string]map[*listener]bool // by channel
	queue []command
	wake  context.CancelFunc // ends the wait for a notification, where there is one
}

// command is SQL, and what became of it.
type command struct {
	sql  string
	done chan<- error
}

// joinEar returns the connection for Deciders with this key, which need not be up yet.
func joinEar(key any, connect func(context.Context) (*pgx.Conn, error)) *ear {
	ears.Lock()
	defer ears.Unlock()
	if ears.of == nil {
		ears.of = map[any]*ear{}
	}
	e := ears.of[key]
	if e == nil {
		ctx, cancel := context.WithCancel(context.Background())
		e = &ear{key: key, cancel: cancel, echo: "leaderelection_echo_" + strings.ToLower(rand.Text()),
			up: make(chan struct{}), ended: make(chan struct{}), feeds: map[string]map[*listener]bool{}}
		ears.of[key] = e
		go e.run(ctx, connect)
	}
	e.users++
	return e
}

// leave ends a feed's use. The last one to leave waits until the connection is closed.
func (e *ear) leave(l *listener) {
	e.unsubscribe(l)
	ears.Lock()
	e.users--
	last := e.users == 0
	if last {
		e.forget()
	}
	ears.Unlock()
	if last {
		e.cancel()
		<-e.ended
	}
}

// forget makes whoever comes next connect anew. Ears is locked.
func (e *ear) forget() {
	if ears.of[e.key] == e {
		delete(ears.of, e.key)
	}
}

// run connects, and hands on what is heard until the connection breaks, or nobody uses
// it any more.
func (e *ear) run(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) {
	defer func() {
		ears.Lock()
		e.forget()
		ears.Unlock()
		close(e.ended)
	}()
	conn, err := connectWithin(ctx, connect)
	if e.err = err; err != nil {
		close(e.up)
		return
	}
	close(e.up)
	defer closeListening(conn)
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
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return conn.PgConn().Exec(ctx, commands).Close()
}

// closeListening closes a connection.
func closeListening(conn *pgx.Conn) {
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
func (e *ear) deliver(n *pgconn.Notification) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := range e.feeds[n.Channel] {
		l.hear(n)
	}
}

// do has the connection run commands; empty ones show whether the server is there.
func (e *ear) do(ctx context.Context, sql string) error {
	e.mu.Lock()
	done := e.put(sql)
	e.mu.Unlock()
	return e.await(ctx, done)
}

// put adds commands to those to run. E.mu is locked.
func (e *ear) put(sql string) <-chan error {
	done := make(chan error, 1)
	e.queue = append(e.queue, command{sql, done})
	if e.wake != nil {
		e.wake()
	}
	return done
}

func (e *ear) await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-e.ended:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// subscribe makes l hear what is notified on these channels from now on.
func (e *ear) subscribe(ctx context.Context, l *listener, channels ...string) error {
	e.mu.Lock()
	var sql strings.Builder
	for _, c := range channels {
		if e.feeds[c] == nil {
			e.feeds[c] = map[*listener]bool{}
		}
		e.feeds[c][l] = true
		sql.WriteString("LISTEN " + pgx.Identifier{c}.Sanitize() + ";") // also where another has: its LISTEN may be on its way
	}
	done := e.put(sql.String())
	e.mu.Unlock()
	return e.await(ctx, done)
}

// unsubscribe ends that, without channels for all. It does not wait.
func (e *ear) unsubscribe(l *listener, channels ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(channels) == 0 {
		for c, feeds := range e.feeds {
			if feeds[l] {
				channels = append(channels, c)
			}
		}
	}
	for _, c := range channels {
		if delete(e.feeds[c], l); len(e.feeds[c]) == 0 {
			delete(e.feeds, c)
			e.put("UNLISTEN " + pgx.Identifier{c}.Sanitize())
		}
	}
}

// earKey is what Deciders that share a connection have in common.
func (b *backend) earKey() any {
	if b.opts.Listen == nil && reflect.TypeOf(b.db).Kind() == reflect.Pointer {
		return b.db
	}
	return b
}
