package legrpc_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/legrpc"
)

// All channels of a Builder, and of those made of it, have one watch, from the first to the
// last; and one read if all ask at once, since a leader's connections have broken.
func TestOneWatchForAllChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		mine, reads := counted(d)
		b := legrpc.NewBuilder(le.WatchConfig{Decider: mine.Polled(), MaxClockSkew: S, PollInterval: 2 * time.Second}, nil)
		builders := []*legrpc.Builder{b, b.With(&legrpc.BuilderOptions{Addresses: legrpc.Port("1")}), b.With(nil)}
		d.Replace(record(1, "a", "10.0.0.1:1"))
		var all []*told
		var open []resolver.Resolver
		join := func() {
			cc := &told{}
			r, err := builders[len(open)%len(builders)].Build(resolver.Target{}, cc, resolver.BuildOptions{})
			if err != nil {
				t.Fatal(err)
			}
			all, open = append(all, cc), append(open, r)
		}
		expectAll := func(want string) {
			t.Helper()
			synctest.Wait()
			for i, cc := range all {
				if got, _ := cc.last(); got != want {
					t.Fatalf("channel %d is told %q, want %q", i, got, want)
				}
			}
		}
		for range 50 {
			join()
		}
		time.Sleep(7 * time.Second)
		expectAll("10.0.0.1:1")
		if n := reads.Load(); n < 3 || n > 5 {
			t.Errorf("%d reads in 7 s for 50 channels that are to look every 2 s", n)
		}
		time.Sleep(900 * time.Millisecond) // a little before the next
		before := reads.Load()
		d.Replace(record(2, "b", "10.0.0.2:1"))
		for _, r := range open {
			r.ResolveNow(resolver.ResolveNowOptions{})
		}
		synctest.Wait()
		expectAll("10.0.0.2:1")
		if n := reads.Load() - before; n != 1 {
			t.Errorf("%d reads when 50 channels asked at once", n)
		}
		time.Sleep(1500 * time.Millisecond)
		if n := reads.Load() - before; n > 3 { // one more for those that asked in the same instant, and the poll's
			t.Errorf("%d reads until all 50 are content", n)
		}
		for _, r := range open[1:] {
			r.Close()
		}
		all, open = all[:1], open[:1]
		d.Replace(record(3, "c", "10.0.0.3:1"))
		time.Sleep(3 * time.Second)
		expectAll("10.0.0.3:1")
		open[0].Close()
		before = reads.Load()
		time.Sleep(time.Minute)
		if n := reads.Load() - before; n != 0 {
			t.Errorf("%d reads when no channel was left", n)
		}
		all, open = nil, nil
		d.Replace(record(4, "d", "10.0.0.4:1"))
		join()
		time.Sleep(time.Millisecond)
		expectAll("10.0.0.4:1")
		open[0].Close()
	})
}

// One that joins while the store cannot be read is told so, as those before it were.
func TestJoiningWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Inject(memory.LoseRequests())
		b := legrpc.NewBuilder(le.WatchConfig{Decider: d, MaxClockSkew: S}, nil)
		for range 2 {
			cc := &told{}
			r, err := b.Build(resolver.Target{}, cc, resolver.BuildOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			synctest.Wait()
			cc.mu.Lock()
			if len(cc.errs) == 0 || !strings.Contains(cc.errs[0].Error(), "cannot be read") {
				t.Errorf("told %v", cc.errs)
			}
			cc.mu.Unlock()
		}
	})
}

// Of several addresses in a record calls go to those that are chosen, if they are fit and
// allowed; and what a leader announces while it leads is followed.
func TestAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := memory.NewDecider()
		b := legrpc.NewBuilder(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S, Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
		build := func(b *legrpc.Builder) *told {
			cc := &told{}
			r, err := b.Build(resolver.Target{}, cc, resolver.BuildOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			return cc
		}
		named, port := build(b.With(&legrpc.BuilderOptions{Addresses: legrpc.Named("orders")})), build(b.With(&legrpc.BuilderOptions{Addresses: legrpc.Port("9000"), ServerName: func(e le.RaceEntry) string { return e.LeaderID }}))
		e := record(1, "a", "10.0.0.1:80", "10.0.0.1:9000")
		e.ConnectionParams = []byte(`{"addresses": {"orders": ["10.0.0.1:7", "169.254.169.254:80", "x/y"]}}`)
		d.Replace(e)
		expect(t, named, "10.0.0.1:7", 1)
		expect(t, port, "10.0.0.1:9000", 1)
		if name := port.states[0].Addresses[0].ServerName; name != "a" {
			t.Errorf("the certificate is to have %q", name)
		}
		for _, want := range []string{"link-local", "x/y"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log says nothing of %s: %s", want, log.String())
			}
		}
		e.Extension++
		e.HostPort, e.ConnectionParams = []string{"10.0.0.9:9000"}, []byte(`{"addresses": {"orders": ["10.0.0.9:7"]}}`)
		d.Replace(e)
		expect(t, named, "10.0.0.9:7", 2)
		expect(t, port, "10.0.0.9:9000", 2)
		e.Extension++
		e.ConnectionParams = []byte(`{"methodConfig": []}`)
		d.Replace(e)
		expect(t, named, "", 3)
		expect(t, port, "10.0.0.9:9000", 3) // for the new service config
		if c, ok := port.states[2].ServiceConfig.Config.(parsed); !ok || c.s != `{"methodConfig": []}` {
			t.Errorf("service config %v", port.states[2].ServiceConfig)
		}
	})
}

// certificate is a self-signed one for name.
func certificate(t *testing.T, name string, pool *x509.CertPool) credentials.TransportCredentials {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return credentials.NewServerTLSFromCert(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})
}

// With a ServerName each leader must show a certificate of its own: one that was deposed
// answers for nobody, not even at the same address.
func TestACertificateForEachLeader(t *testing.T) {
	pool := x509.NewCertPool()
	at := map[string]string{}
	for _, name := range []string{"a", "b"} {
		server := grpc.NewServer(grpc.Creds(certificate(t, name, pool)))
		server.RegisterService(&description, echo(name))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { _ = server.Serve(l) })
		t.Cleanup(func() { server.Stop(); wg.Wait() })
		at[name] = l.Addr().String()
	}
	d := memory.NewDecider()
	b := legrpc.NewBuilder(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S}, &legrpc.BuilderOptions{ServerName: func(e le.RaceEntry) string { return e.LeaderID }})
	conn, err := grpc.NewClient("leaderelection:///orders", append(b.DialOptions(nil), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool})))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	until := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for {
			got, err := say(ctx, conn, "hi", grpc.WaitForReady(false))
			if err == nil && got == want || err != nil && want != "" && strings.Contains(err.Error(), want) {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%q, %v, want %q", got, err, want)
			}
		}
	}
	d.Replace(record(1, "a", at["a"]))
	until("a hi")
	d.Replace(record(2, "b", at["b"]))
	until("b hi")
	d.Replace(record(3, "c", at["b"]))
	until("certificate is valid for b, not c")
	d.Replace(record(4, "a", at["a"]))
	until("a hi")
}

// A connection on which nothing passes any more is noticed, though the leader leads on and
// nobody else is known: by default within minutes, which every server bears, and within
// seconds where both sides agree. Who only takes long to answer keeps the connection.
func TestADeadConnectionIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name   string
		every  time.Duration
		server []grpc.ServerOption
		want   time.Duration // zero: not
	}{
		{"by default", 0, nil, 6*time.Minute + 10*time.Second},
		{"if both agree", 10 * time.Second, legrpc.KeepaliveServerOptions(), 20 * time.Second},
		{"not if it is not wanted", -1, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := routetest.NewPipes()
				server := grpc.NewServer(c.server...)
				server.RegisterService(&description, &service{say: func(ctx context.Context, in string) (string, error) {
					select {
					case <-time.After(30 * time.Minute):
					case <-ctx.Done():
					}
					return in, nil
				}})
				go func() { _ = server.Serve(p) }()
				d := memory.NewDecider()
				e := record(1, "a", "10.0.0.1:1")
				e.TermLength, e.TermExpiry = 24*time.Hour, time.Now().Add(24*time.Hour)
				d.Replace(e)
				b := legrpc.NewBuilder(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S}, nil)
				conn, err := grpc.NewClient("leaderelection:///orders", append(b.DialOptions(&legrpc.ClientOptions{Keepalive: c.every}),
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.Dial(ctx) }), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
				if err != nil {
					t.Fatal(err)
				}
				if out, err := say(t.Context(), conn, "slow", grpc.WaitForReady(true)); out != "slow" || err != nil {
					t.Errorf("a slow leader: %q, %v", out, err)
				}
				time.AfterFunc(time.Second, p.Cut)
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				_, err = say(ctx, conn, "lost", grpc.WaitForReady(true))
				took := time.Since(begin)
				if noticed := status.Code(err) == codes.Unavailable; noticed != (c.want > 0) || noticed && (took < c.want || took > c.want+5*time.Second) {
					t.Errorf("%v after %v, want it after %v", err, took, c.want)
				}
				_ = conn.Close()
				server.Stop()
				synctest.Wait()
			})
		})
	}
}
