package natskv_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// message is one that a server sends to a client.
type message struct {
	op, subject, sid string
	sizes            string // of header and all, or of all
	body             []byte
}

// answer reports whether it answers a request.
func (m message) answer() bool { return strings.HasPrefix(m.subject, "_INBOX.") && m.op != "" }

func (m message) with(body string) message {
	m.op, m.sizes, m.body = "MSG", fmt.Sprint(len(body)), []byte(body)
	return m
}

// hostile is a proxy that gives the client what deliver makes of each message. It
// may be changed, and is called by one goroutine at a time.
type hostile struct {
	js jetstream.JetStream
	d  *natskv.Decider // by that client

	mu      sync.Mutex
	deliver func(message) []message
}

func (h *hostile) from(deliver func(message) []message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deliver = deliver
}

func honest(m message) []message { return []message{m} }

func newHostile(t *testing.T) *hostile {
	t.Helper()
	s := startServer(t)
	h := &hostile{deliver: honest}
	h.js = through(t, between(t, s, func(client, server net.Conn) {
		go func() { defer server.Close(); _, _ = io.Copy(server, client) }()
		defer client.Close()
		h.pass(client, bufio.NewReader(server))
	}))
	makeBucket(t, s.client(t))
	h.d = natskv.NewDecider(h.js, bucket, key, nil)
	return h
}

// pass hands messages on, and all other lines as they are.
func (h *hostile) pass(client io.Writer, server *bufio.Reader) {
	for {
		line, err := server.ReadString('\n')
		if err != nil {
			return
		}
		op, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if op != "MSG" && op != "HMSG" {
			if _, err := io.WriteString(client, line); err != nil {
				return
			}
			continue
		}
		words := strings.Fields(rest) // subject, sid, perhaps what to reply to, one size or two
		sizes := 1
		if op == "HMSG" {
			sizes = 2
		}
		var n int
		_, _ = fmt.Sscan(words[len(words)-1], &n)
		m := message{op: op, subject: words[0], sid: strings.Join(words[1:len(words)-sizes], " "), sizes: strings.Join(words[len(words)-sizes:], " "), body: make([]byte, n)}
		if _, err := io.ReadFull(server, m.body); err != nil {
			return
		}
		_, _ = server.Discard(2)
		h.mu.Lock()
		out := h.deliver(m)
		h.mu.Unlock()
		for _, m := range out {
			if _, err := fmt.Fprintf(client, "%s %s %s %s\r\n%s\r\n", m.op, m.subject, m.sid, m.sizes, m.body); err != nil {
				return
			}
		}
	}
}

// within50ms is what a call says that has so long.
func within50ms(t *testing.T, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	return call(ctx)
}

// Answers that come twice are one answer.
func TestAnswersTwice(t *testing.T) {
	h := newHostile(t)
	d := h.d
	h.from(func(m message) []message { return []message{m, m} })
	for number := range leaderelection.ElectionNumber(5) {
		feedtest.Write(t, d, uint64(number)+1, feedtest.Read(t, d).Token)
		feedtest.Reads(t, d, uint64(number)+1)
		loses(t, d, nil)
	}
}

// An answer that comes after its call was given up answers no later one.
func TestAnswersLate(t *testing.T) {
	h := newHostile(t)
	d := h.d
	token := feedtest.Write(t, d, 1, nil)
	var kept []message
	h.from(func(m message) []message {
		if m.answer() {
			kept = append(kept, m)
			return nil
		}
		return []message{m}
	})
	doubtful(t, "writing", within50ms(t, func(ctx context.Context) error { _, err := d.WriteEntry(ctx, feedtest.State(2, token)); return err }))
	doubtful(t, "reading", within50ms(t, func(ctx context.Context) error { _, err := d.ReadCurrent(ctx); return err }))
	h.from(func(m message) []message {
		out := append(kept, m)
		kept = nil
		return out
	})
	loses(t, d, token) // the write that was given up has landed
	feedtest.Reads(t, d, 2)
}

// What answers a write, but is not what the bucket's stream answers to that very
// write, is no success; nor is a read that is about another key.
func TestAnswersOfSomethingElse(t *testing.T) {
	h := newHostile(t)
	d, other := h.d, natskv.NewDecider(h.js, bucket, "other", nil)
	token := feedtest.Write(t, d, 1, nil)
	var first message // the last answer to a write
	h.from(func(m message) []message {
		if m.answer() {
			first = m
		}
		return []message{m}
	})
	token = feedtest.Write(t, d, 2, token)
	h.from(honest)
	replaced := func(body func(message) string) func(message) []message {
		return func(m message) []message {
			if m.answer() && bytes.Contains(m.body, []byte(`"stream"`)) {
				return []message{m.with(body(m))}
			}
			return []message{m}
		}
	}
	for name, body := range map[string]func(message) string{
		"an earlier write's":  func(message) string { return string(first.body) },
		"another stream's":    func(m message) string { return strings.Replace(string(m.body), "KV_"+bucket, "KV_OTHER", 1) },
		"a duplicate's":       func(m message) string { return strings.Replace(string(m.body), `"seq"`, `"duplicate":true,"seq"`, 1) },
		"a sequence of none":  func(message) string { return `{"stream":"KV_` + bucket + `"}` },
		"an empty object":     func(message) string { return `{}` },
		"nothing":             func(message) string { return `` },
		"a page":              func(message) string { return `<html>200 OK</html>` },
		"some service's word": func(message) string { return `+OK` },
	} {
		t.Run(name, func(t *testing.T) {
			now := feedtest.Read(t, d)
			h.from(replaced(body))
			err := feedtest.WriteError(t, d, uint64(now.ElectionNumber)+1, now.Token)
			h.from(honest)
			doubtful(t, "writing", err)
		})
	}
	loses(t, d, token)

	feedtest.Write(t, other, 77, nil)
	var answer message
	h.from(func(m message) []message { answer = m; return []message{m} })
	feedtest.Read(t, other)
	h.from(func(m message) []message {
		answer.subject = m.subject
		return []message{answer}
	})
	doubtful(t, "reading", feedtest.ReadError(t, d))
}

// A server that answers PINGs and no request costs time only, and is not left:
// another would ask the same stream.
func TestAnswersToPingsOnly(t *testing.T) {
	h := newHostile(t)
	d := h.d
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	h.from(func(message) []message { return nil })
	doubtful(t, "writing", within50ms(t, func(ctx context.Context) error { _, err := d.WriteEntry(ctx, feedtest.State(1, nil)); return err }))
	doubtful(t, "following", feedtest.Next(t, feed).Err)
	h.from(honest)
	feedtest.Reads(t, d, 1)
	if n := h.js.Conn().Stats().Reconnects; n != 0 {
		t.Errorf("%d reconnects", n)
	}
}

// callsEnd fails the test where a call of a server that does not answer lasts longer than its ctx, or
// where what is said of it is that a race was lost, or that there is no hope.
func callsEnd(t *testing.T, d *natskv.Decider, token leaderelection.LeaderToken) {
	t.Helper()
	for what, call := range map[string]func(context.Context) error{
		"ReadCurrent": func(ctx context.Context) error { _, err := d.ReadCurrent(ctx); return err },
		"WriteEntry":  func(ctx context.Context) error { _, err := d.WriteEntry(ctx, feedtest.State(2, token)); return err },
		"Changes": func(ctx context.Context) error {
			for e, err := range d.Changes(ctx) {
				t.Errorf("Changes yields %+v, %v", e, err)
			}
			return ctx.Err()
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		timer := time.AfterFunc(50*time.Millisecond, cancel)
		err := call(ctx)
		timer.Stop()
		if took := time.Since(begin); took < 50*time.Millisecond || took > time.Second {
			t.Errorf("%s returned after %v", what, took)
		}
		if feedtest.Passing(t, err); !errors.Is(err, context.Canceled) {
			t.Errorf("%s = %v", what, err)
		}
	}
}

// While there is no connection, a call fails at once, and sends nothing later.
func TestNotConnected(t *testing.T) {
	s := startServer(t)
	js := s.client(t, nats.ReconnectWait(10*time.Millisecond))
	makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	token := feedtest.Write(t, d, 1, nil)
	s.Stop()
	status := js.Conn().StatusChanged(nats.CONNECTED)
	for js.Conn().IsConnected() {
		_ = js.Conn().FlushTimeout(10 * time.Millisecond)
	}
	begin := time.Now()
	feedtest.Passing(t, feedtest.WriteError(t, d, 2, token))
	if took := time.Since(begin); took > time.Second {
		t.Errorf("after %v", took)
	}
	s.Start(t)
	<-status
	feedtest.Reads(t, d, 1) // the write that failed has not landed
	feedtest.Write(t, d, 2, token)
}

// A server that has stopped answering holds no call for longer than its ctx lasts, even if what a caller
// sends over the same connection has filled it.
func TestSilentServerAndFullConnection(t *testing.T) {
	s := startServer(t)
	relay := stores.NewRelay(t, s.addr())
	js := through(t, relay.Addr)
	nc := js.Conn()
	makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	unused := natskv.NewDecider(js, bucket, "another", nil) // that has yet to look up its bucket
	token := feedtest.Write(t, d, 1, nil)
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	relay.Cut()
	callsEnd(t, unused, nil)
	full := make(chan struct{})
	go func() { // until a write blocks, and holds the connection's lock
		defer close(full)
		for range 256 { // of 128 MB the relay and the kernel take a part
			if nc.Publish("elsewhere", make([]byte, 1<<19)) != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { relay.Heal(); <-full })
	for stuck := false; !stuck; {
		done := make(chan struct{})
		go func() { _ = nc.Stats(); close(done) }() // which wants that lock
		select {
		case <-done:
		case <-time.After(time.Second):
			stuck = true
		}
	}
	callsEnd(t, d, token)
	feedtest.Passing(t, feedtest.Next(t, feed).Err)
}

// A server that refuses the user for a while, as while passwords are changed, is
// asked on, and served by as soon as it lets the user in. The error says meanwhile
// what it is about.
func TestRefusedForAWhile(t *testing.T) {
	stores.Nightly(t, "what clients wait for")
	accounts := func(password string) func(*server.Options) {
		return configured(t, `accounts { main { jetstream: enabled, users: [{user: u, password: `+password+`}] } }`)
	}
	s := startServer(t, accounts("right"))
	d := opened(t, at(t, s, url.UserPassword("u", "right"), "/"+bucket+"/"+key+"?create=true"))
	token := feedtest.Write(t, d, 1, nil)

	port := s.Addr().(*net.TCPAddr).Port
	s.Stop()
	other := startServer(t, accounts("wrong"), func(o *server.Options) { o.Port = port })
	feedtest.Eventually(t, "it tries on", func() bool { // nats.go would give up after the second
		v, err := other.Varz(nil)
		return err == nil && v.TotalConnections >= 4
	})
	err := feedtest.ReadError(t, d)
	doubtful(t, "reading", err)
	feedtest.Says(t, err, "not connected", "Authorization")
	other.Stop()
	s.Start(t)
	feedtest.Eventually(t, "it is served", func() bool { return feedtest.ReadError(t, d) == nil })
	feedtest.Write(t, d, 2, token)
}

// A connection of the caller's that is closed, or has given up, says how to make one that does not.
func TestConnectionThatGaveUp(t *testing.T) {
	s := startServer(t)
	js := s.client(t, nats.MaxReconnects(1), nats.ReconnectWait(time.Millisecond))
	makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	closed := js.Conn().StatusChanged(nats.CLOSED)
	s.Stop()
	<-closed
	feedtest.Refuses(t, d, bucket, key, "ConnectOptions")
	d, js, _ = inBucket(t)
	js.Conn().Close()
	feedtest.Refuses(t, d, bucket, key, "ConnectOptions")
}
