package natskv_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// link is a connection to a server that can be made to hang: bytes go in, and
// none come out.
type link struct {
	addr  string
	mu    sync.RWMutex // held for writing while it hangs
	conns atomic.Int64 // made so far
}

// hang lets nothing through until the function that it returns is called.
func (k *link) hang() (resume func()) {
	k.mu.Lock()
	return sync.OnceFunc(k.mu.Unlock)
}

func newLink(t *testing.T, s *natstest.Server) *link {
	t.Helper()
	k := new(link)
	pipe := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		for buf := make([]byte, 32<<10); ; {
			n, err := from.Read(buf)
			k.mu.RLock()
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				k.mu.RUnlock()
				return
			}
			k.mu.RUnlock()
		}
	}
	k.addr = between(t, s, func(client, server net.Conn) {
		k.conns.Add(1)
		go pipe(server, client)
		pipe(client, server)
	})
	return k
}

// between listens for clients of a server, and calls pass with each and a connection
// to the server, which is to end when one of them does. It returns where.
func between(t *testing.T, s *natstest.Server, pass func(client, server net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(s.ClientURL(), "nats://") // it keeps it when it is started again
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			all.Go(func() { pass(client, server) })
		}
	})
	return l.Addr().String()
}

// through returns a client that is configured as most are, for the first of these
// addresses, then the others.
func through(t *testing.T, addrs ...string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("nats://"+strings.Join(addrs, ",nats://"), nats.DontRandomize(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// A server that has stopped answering holds no call for longer than its ctx
// lasts, and what is said of it is neither that a race was lost nor that there is
// no hope.
func TestHungServer(t *testing.T) {
	s := natstest.Start(t)
	k := newLink(t, s)
	js := through(t, k.addr)
	makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	unused := natskv.NewDecider(js, bucket, "another", nil) // that has yet to look up its bucket
	token := feedtest.Write(t, d, 1, nil)
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)

	resume := k.hang()
	t.Cleanup(resume) // before the connection is closed
	enough := errors.New("enough")
	for what, call := range map[string]func(context.Context) error{
		"ReadCurrent": func(ctx context.Context) error { _, err := d.ReadCurrent(ctx); return err },
		"WriteEntry":  func(ctx context.Context) error { _, err := d.WriteEntry(ctx, feedtest.State(2, token)); return err },
		"first ReadCurrent": func(ctx context.Context) error {
			_, err := unused.ReadCurrent(ctx)
			return err
		},
		"Changes": func(ctx context.Context) error {
			for e, err := range d.Changes(ctx) {
				t.Errorf("Changes yields %+v, %v", e, err)
			}
			return context.Canceled
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		begin := time.Now()
		timer := time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
		err := call(ctx)
		timer.Stop()
		if took := time.Since(begin); took < 50*time.Millisecond || took > time.Second {
			t.Errorf("%s returned after %v", what, took)
		}
		if !errors.Is(err, context.Canceled) || errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, leaderelection.ErrLostRace) {
			t.Errorf("%s = %v", what, err)
		}
	}
	feedtest.Passing(t, feedtest.Next(t, feed).Err)
	resume()
	// The write of above may have landed, or land only now: that is for the record
	// to say, the next time one asks.
	for {
		e := feedtest.Read(t, d)
		_, err := d.WriteEntry(t.Context(), feedtest.State(uint64(e.ElectionNumber)+1, e.Token))
		if err == nil {
			return
		}
		if !errors.Is(err, leaderelection.ErrLostRace) || e.ElectionNumber > 2 {
			t.Fatal(err)
		}
	}
}

// While there is no connection, a call fails at once, and sends nothing later.
func TestNotConnected(t *testing.T) {
	s := natstest.Start(t)
	js := s.JetStream(t, nats.ReconnectWait(10*time.Millisecond))
	makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	token := feedtest.Write(t, d, 1, nil)
	s.Stop()
	status := js.Conn().StatusChanged(nats.CONNECTED)
	for js.Conn().IsConnected() {
		_ = js.Conn().FlushTimeout(10 * time.Millisecond)
	}
	begin := time.Now()
	_, err := d.WriteEntry(t.Context(), feedtest.State(2, token))
	feedtest.Passing(t, err)
	if took := time.Since(begin); took > time.Second {
		t.Errorf("after %v", took)
	}
	s.Start(t)
	<-status
	if e := feedtest.Read(t, d); e.ElectionNumber != 1 {
		t.Errorf("the write that failed has landed: %+v", e)
	}
	feedtest.Write(t, d, 2, token)
}
