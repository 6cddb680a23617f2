package natskv_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A server that falls silent, and keeps its connections, is left for another one:
// within seconds, also on a connection of the caller's, which by itself would wait
// for six minutes.
func TestSilentServerIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: a cluster, and what its clients wait for")
	}
	s := natstest.Start(t)
	makeBucket(t, s.JetStream(t))
	k := newLink(t, s)
	var candidates []leaderelection.RaceDecider
	for range 2 {
		candidates = append(candidates, natskv.NewDecider(through(t, k.addr, strings.TrimPrefix(s.ClientURL(), "nats://")), bucket, key, nil))
	}
	tr := newTrial(t, candidates...)
	number, _ := tr.after(0, 10*time.Second)
	resume := k.hang()
	t.Cleanup(resume)
	tr.after(number, 20*time.Second)
}

// What a caller sends over the same connection may fill it when the server falls
// silent. Calls end with their ctx all the same.
func TestSilentServerAndFullConnection(t *testing.T) {
	s := natstest.Start(t)
	k := newLink(t, s)
	js := through(t, k.addr)
	nc := js.Conn()
	makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	token := feedtest.Write(t, d, 1, nil)
	resume := k.hang()
	full := make(chan struct{})
	go func() { // until a write blocks, and holds the connection's lock
		defer close(full)
		for range 64 {
			if nc.Publish("elsewhere", make([]byte, 1<<19)) != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { resume(); <-full })
	for stuck := false; !stuck; {
		done := make(chan struct{})
		go func() { _ = nc.Stats(); close(done) }() // which wants that lock
		select {
		case <-done:
		case <-time.After(time.Second):
			stuck = true
		}
	}
	for what, call := range map[string]func(context.Context) error{
		"ReadCurrent": func(ctx context.Context) error { _, err := d.ReadCurrent(ctx); return err },
		"WriteEntry":  func(ctx context.Context) error { _, err := d.WriteEntry(ctx, feedtest.State(2, token)); return err },
		"Changes": func(ctx context.Context) error {
			for range d.Changes(ctx) {
			}
			return ctx.Err()
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begin := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(begin); err == nil || took > time.Second {
			t.Errorf("%s returned %v after %v", what, err, took)
		}
	}
}

// pause is between two looks at something that nothing tells of.
func pause(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(context.Cause(t.Context()))
	}
}

// A server that refuses the user for a while, as while passwords are changed, is
// asked on, and served by as soon as it lets the user in. The error says meanwhile
// what it is about.
func TestRefusedForAWhile(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: a cluster, and what its clients wait for")
	}
	accounts := func(password string) func(*server.Options) {
		return configured(t, `accounts { main { jetstream: enabled, users: [{user: u, password: `+password+`}] } }`)
	}
	s := natstest.Start(t, accounts("right"))
	k := newLink(t, s)
	u := &url.URL{Scheme: "nats", Host: strings.TrimPrefix(k.addr, "nats://"), User: url.UserPassword("u", "right"), Path: "/" + bucket + "/" + key, RawQuery: "create=true"}
	d := opened(t, u)
	token := feedtest.Write(t, d, 1, nil)

	port := s.Addr().(*net.TCPAddr).Port
	s.Stop()
	other := natstest.Start(t, accounts("wrong"), func(o *server.Options) { o.Port = port })
	for before := k.conns.Load(); k.conns.Load() < before+4; { // nats.go would give up after the second
		pause(t)
	}
	_, err := d.ReadCurrent(t.Context())
	doubtful(t, "reading", err)
	if !strings.Contains(err.Error(), "not connected") || !strings.Contains(err.Error(), "Authorization") {
		t.Errorf("while the user is refused: %v", err)
	}
	other.Stop()
	s.Start(t)
	for _, err := d.ReadCurrent(t.Context()); err != nil; _, err = d.ReadCurrent(t.Context()) {
		pause(t)
	}
	feedtest.Write(t, d, 2, token)
}

// A connection of the caller's that has given up says how to make one that does
// not.
func TestConnectionThatGaveUp(t *testing.T) {
	s := natstest.Start(t)
	js := s.JetStream(t, nats.MaxReconnects(1), nats.ReconnectWait(time.Millisecond))
	makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	closed := js.Conn().StatusChanged(nats.CLOSED)
	s.Stop()
	<-closed
	feedtest.Refuses(t, d, bucket, key, "ConnectOptions")
}
