// Package natskv_test has the tests of deciders/natskv that require a NATS server in their own process.
package natskv_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(natskv.Open)
	goleak.VerifyTestMain(m)
}

const (
	bucket = "elections"
	key    = "billing"
)

// makeBucket makes the bucket that most tests use.
func makeBucket(t testing.TB, js jetstream.JetStream, change ...func(*jetstream.KeyValueConfig)) jetstream.KeyValue {
	t.Helper()
	c := jetstream.KeyValueConfig{Bucket: bucket}
	for _, f := range change {
		f(&c)
	}
	kv, err := js.CreateKeyValue(t.Context(), c)
	if err != nil {
		t.Fatalf("making bucket: %v", err)
	}
	return kv
}

// inBucket starts a server that has the bucket, and returns an election in it, and its client.
func inBucket(t testing.TB, change ...func(*jetstream.KeyValueConfig)) (*natskv.Decider, jetstream.JetStream, jetstream.KeyValue) {
	t.Helper()
	js := startServer(t).client(t)
	kv := makeBucket(t, js, change...)
	return natskv.NewDecider(js, bucket, key, nil), js, kv
}

// elections makes one election after another in one bucket, each handle with a client of its own.
func elections(js func(t testing.TB) jetstream.JetStream, create jetstream.KeyValueConfig) feedtest.NewElection {
	var n atomic.Int64
	return func(t testing.TB) func() leaderelection.RaceDecider {
		key := fmt.Sprintf("services/web.%d", n.Add(1))
		return func() leaderelection.RaceDecider {
			return natskv.NewDecider(js(t), bucket, key, &natskv.Options{Create: &create})
		}
	}
}

// loses fails the test where a write with token is not a lost race.
func loses(t testing.TB, d leaderelection.RaceDecider, token leaderelection.LeaderToken) {
	t.Helper()
	feedtest.Lost(t, feedtest.WriteError(t, d, 99, token))
}

// doubtful fails the test where err is not one that leaves all open, and names the
// place and what was being done.
func doubtful(t *testing.T, doing string, err error) {
	t.Helper()
	feedtest.Passing(t, err, bucket, key, doing)
}

// inProcess is a nats-server with JetStream in the test's process.
type inProcess struct {
	*server.Server
	opts *server.Options
}

// startServer starts a server whose JetStream is kept on disk. Change may alter its
// options.
func startServer(t testing.TB, change ...func(*server.Options)) *inProcess {
	t.Helper()
	dir, err := os.MkdirTemp("", "nats") // t.TempDir fails if the server writes a last file meanwhile
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := &server.Options{Host: "127.0.0.1", Port: stores.FreePort(t), JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true}
	for _, c := range change {
		c(o)
	}
	s := &inProcess{opts: o}
	t.Cleanup(s.Stop)
	s.Start(t)
	return s
}

// configured reads a server's options from a configuration file's text.
func configured(t testing.TB, text string) func(*server.Options) {
	return func(o *server.Options) {
		if err := o.ProcessConfigString(text); err != nil {
			t.Fatal(err)
		}
	}
}

// Start starts the server, again where it was stopped: with the same port and
// the same data.
func (s *inProcess) Start(t testing.TB) {
	t.Helper()
	srv, err := server.NewServer(s.opts.Clone())
	if err != nil {
		t.Fatalf("nats-server: %v", err)
	}
	s.Server = srv
	go srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("nats-server: not ready")
	}
}

// Stop stops the server and waits until it is gone. Nothing is flushed that was
// not on disk already.
func (s *inProcess) Stop() {
	if s.Server != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// addr is the server's host and port, which it keeps when it is started again.
func (s *inProcess) addr() string { return strings.TrimPrefix(s.ClientURL(), "nats://") }

// client returns a client that reconnects quickly and for ever.
func (s *inProcess) client(t testing.TB, o ...nats.Option) jetstream.JetStream {
	t.Helper()
	return client(t, s.ClientURL(), o...)
}

// client returns a client of the servers that url names, with commas between them, which reconnects
// quickly and for ever.
func client(t testing.TB, url string, o ...nats.Option) jetstream.JetStream {
	t.Helper()
	return connect(t, url, append([]nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(20 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default one prints
	}, o...)...)
}

// through returns a client that is configured as most are, for the first of these
// addresses, then the others.
func through(t testing.TB, addrs ...string) jetstream.JetStream {
	t.Helper()
	return connect(t, "nats://"+strings.Join(addrs, ",nats://"), nats.DontRandomize(), nats.MaxReconnects(-1))
}

// connect returns a client that is closed at the end of the test.
func connect(t testing.TB, url string, o ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, o...)
	if err != nil {
		t.Fatalf("connecting to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// cluster starts three servers in processes of their own, and returns when they can make a bucket
// that is replicated to all of them. Connect makes clients that know all three.
func cluster(t testing.TB) (members []*stores.NATSServer, connect func(testing.TB) jetstream.JetStream) {
	t.Helper()
	members = stores.NATSCluster(t, 3)
	url := members[0].URL() + "," + members[1].URL() + "," + members[2].URL()
	connect = func(t testing.TB) jetstream.JetStream { return client(t, url) }
	js := connect(t)
	feedtest.Eventually(t, "the servers replicate", func() bool {
		_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "ready", Replicas: 3})
		return err == nil
	})
	return members, connect
}

// between listens for clients of a server, and calls pass with each and a connection
// to the server, which is to end when one of them does. It returns where.
func between(t *testing.T, s *inProcess, pass func(client, server net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", s.addr())
			if err != nil {
				_ = client.Close()
				continue
			}
			all.Go(func() { pass(client, server) })
		}
	})
	return l.Addr().String()
}
