// Package natskv_test has the tests of deciders/natskv that require a NATS server in their own process.
package natskv_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/sim"
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

func TestConformance(t *testing.T) {
	s := startServer(t)
	decidertest.Run(t, elections(func(t testing.TB) jetstream.JetStream { return s.client(t) }, jetstream.KeyValueConfig{}), nil)
}

// onServer makes elections on a server in a process of its own.
func onServer(s *stores.NATSServer) feedtest.NewElection {
	return elections(func(t testing.TB) jetstream.JetStream { return client(t, s.URL()) }, jetstream.KeyValueConfig{})
}

// killed is a server that is killed, and started again with what it had on disk.
func killed(t testing.TB, s *stores.NATSServer) feedtest.Trouble {
	return feedtest.Trouble{Break: s.Stop, Heal: func() { s.Start(t) }}
}

func TestProcesses(t *testing.T) {
	s := stores.NATS(t)
	proctest.Run(t, proctest.Options{Address: s.URL() + "/elections/one?create=true", Upstream: s.Addr})
}

// Whatever befalls the leader's connection for a while, it keeps its leadership.
func TestFaults(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	s := startServer(t)
	makeBucket(t, s.client(t))
	relay := stores.NewRelay(t, s.addr())
	d := opened(t, at(t, s, nil, "/"+bucket+"/"+key))
	feedtest.Faults(t, natskv.NewDecider(client(t, "nats://"+relay.Addr), bucket, key, nil), d, relay)
}

func TestHandover(t *testing.T) { feedtest.Handover(t, onServer(stores.NATS(t))) }

func TestOutage(t *testing.T) {
	s := stores.NATS(t)
	feedtest.Outage(t, onServer(s), killed(t, s))
}

func TestNews(t *testing.T) {
	s := stores.NATS(t)
	handle := onServer(s)(t)
	feedtest.News(t, handle(), handle(), killed(t, s))
}

// A server that falls silent, and keeps its connections, is left for a new connection or another
// server within seconds, also on a connection of the caller's, which by itself would wait for six minutes.
func TestSilentServerIsLeft(t *testing.T) {
	stores.Nightly(t, "gives calls up by the wall clock")
	s := startServer(t)
	makeBucket(t, s.client(t))
	t.Run("new connection", func(t *testing.T) {
		relay := stores.NewRelay(t, s.addr())
		feedtest.Abandons(t, natskv.NewDecider(through(t, relay.Addr), bucket, key, nil), relay.Swallow)
	})
	t.Run("another server", func(t *testing.T) {
		relay := stores.NewRelay(t, s.addr())
		feedtest.Abandons(t, natskv.NewDecider(through(t, relay.Addr, s.addr()), bucket, key, nil), relay.Cut)
	})
}

// Killed at any moment, a server has on disk what it has acknowledged, as long as
// its machine lives.
func TestServerKilled(t *testing.T) {
	stores.Nightly(t, "starts a server again and again")
	s := stores.NATS(t)
	js := client(t, s.URL())
	makeBucket(t, js)
	d := natskv.NewDecider(js, bucket, key, nil)
	for number := range uint64(5) {
		feedtest.Reads(t, d, number)
		feedtest.Write(t, d, number+1, feedtest.Read(t, d).Token)
		s.Stop()
		s.Start(t)
		feedtest.Eventually(t, "it is read", func() bool { return feedtest.ReadError(t, d) == nil })
	}
	feedtest.Reads(t, d, 5)
}

// The contract holds on three servers as on one.
func TestConformanceOfCluster(t *testing.T) {
	stores.Nightly(t, "a cluster")
	members, connect := cluster(t)
	three := jetstream.KeyValueConfig{Replicas: 3}
	// A server that was the last to hear of the new stream answers "no responders" for a
	// moment, which a campaign tries again after and the conformance tests take for a fault.
	for _, s := range members {
		d := natskv.NewDecider(client(t, s.URL()), bucket, "first", &natskv.Options{Create: &three})
		feedtest.Eventually(t, "the server knows of the bucket", func() bool { return feedtest.ReadError(t, d) == nil })
	}
	decidertest.Run(t, elections(connect, three), &decidertest.Options{Rounds: 10})
}

// The server that leads the bucket's stream is killed. The others must first elect another for the
// stream, which takes them up to 9 s; nobody can write meanwhile. Without a majority nobody can at all.
func TestClusterLosesItsLeader(t *testing.T) {
	stores.Nightly(t, "a cluster, and what its clients wait for")
	members, connect := cluster(t)
	js := connect(t)
	makeBucket(t, js, func(c *jetstream.KeyValueConfig) { c.Replicas = 3 })
	killLeader := func() {
		var name string
		feedtest.Eventually(t, "the stream has a leader", func() bool {
			s, err := js.Stream(t.Context(), "KV_"+bucket)
			if err == nil {
				name = s.CachedInfo().Cluster.Leader
			}
			return name != ""
		})
		members[slices.IndexFunc(members, func(s *stores.NATSServer) bool { return s.Name == name })].Stop()
	}
	d := natskv.NewDecider(js, bucket, key, nil)
	token := feedtest.Write(t, d, 1, nil)

	killLeader()
	killed := time.Now()
	feedtest.Eventually(t, "a write", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e, err := d.ReadCurrent(ctx)
		if err == nil && e.ElectionNumber == 1 {
			_, _ = d.WriteEntry(ctx, feedtest.State(2, e.Token))
		} else if err == nil {
			token = e.Token
		}
		return err == nil && e.ElectionNumber == 2
	})
	took := time.Since(killed)
	t.Logf("written again after %v", took.Round(time.Millisecond))
	if took > 13*time.Second {
		t.Errorf("written again after %v", took)
	}

	killLeader()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	_, err := d.WriteEntry(ctx, feedtest.State(3, token))
	feedtest.Passing(t, err, bucket, key)
}

var (
	seedCount = flag.Int("seeds", 50, "how many seeds TestSimulated simulates")
	oneSeed   = flag.Int64("seed", -1, "simulate this seed only, and print its trace")
)

// TestSimulated runs the simulations of internal/test/sim, with the same faults and rules,
// on the real NATS server and its client, which live in the bubble and so in virtual time.
func TestSimulated(t *testing.T) {
	count, first := *seedCount, uint64(1)
	if testing.Short() {
		count = 5
	}
	if *oneSeed >= 0 {
		count, first = 1, uint64(*oneSeed)
	}
	ats.Register() // the server's ticker, which is for all servers of a process: outside
	defer ats.Unregister()
	t.Run("all", func(t *testing.T) {
		for seed := first; seed < first+uint64(count); seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				replay := fmt.Sprintf("replay: go test ./internal/test/apart/natskv -run TestSimulated -seed %d", seed)
				watchdog := time.AfterFunc(time.Minute, func() { panic(replay + "\nhot loop: time has stood still for a minute") })
				defer watchdog.Stop()
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					res := simulate(t, dir, sim.Draw(seed))
					if len(res.Violations) > 0 {
						t.Errorf("%s\n%v", replay, res)
					} else if *oneSeed >= 0 {
						t.Log(res)
					}
				})
			})
		}
	})
}

// simulate runs one simulation on a server of its own, without a socket and with its
// bucket in memory.
func simulate(t *testing.T, dir string, p sim.Params) *sim.Result {
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "elections", Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	return sim.Run(p, sim.On(natskv.NewDecider(js, "elections", "simulated", nil)))
}
