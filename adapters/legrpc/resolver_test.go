package legrpc_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/legrpc"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// told is a resolver.ClientConn that remembers what it is told.
type told struct {
	mu     sync.Mutex
	states []resolver.State
	errs   []error
}

func (c *told) UpdateState(s resolver.State) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states = append(c.states, s)
	if len(s.Endpoints)+len(s.Addresses) == 0 {
		return errors.New("no addresses")
	}
	return nil
}

func (c *told) ReportError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

func (c *told) NewAddress([]resolver.Address) {}

// ParseServiceConfig takes what begins with a brace.
func (c *told) ParseServiceConfig(s string) *serviceconfig.ParseResult {
	if !strings.HasPrefix(s, "{") {
		return &serviceconfig.ParseResult{Err: errors.New("invalid character")}
	}
	return &serviceconfig.ParseResult{Config: parsed{s: s}}
}

type parsed struct {
	serviceconfig.Config
	s string
}

// last is what it was told last: the addresses, joined, and how often.
func (c *told) last() (string, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.states) == 0 {
		return "never", 0
	}
	var all []string
	for _, a := range c.states[len(c.states)-1].Addresses {
		all = append(all, a.Addr)
	}
	return strings.Join(all, " "), len(c.states)
}

// failures is how many it was told of.
func (c *told) failures() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.errs)
}

// build starts a resolver of b, until the test ends.
func build(t *testing.T, b *legrpc.Builder) (*told, resolver.Resolver) {
	t.Helper()
	cc := &told{}
	r := must(b.Build(resolver.Target{URL: url.URL{Scheme: "leaderelection"}}, cc, resolver.BuildOptions{}))(t)
	t.Cleanup(r.Close)
	return cc, r
}

// of returns a Builder of an election.
func of(d le.RaceDecider) *legrpc.Builder {
	return legrpc.NewBuilder(le.WatchConfig{Decider: d, MaxClockSkew: S}, nil)
}

func expect(t *testing.T, cc *told, addresses string, updates int) {
	t.Helper()
	synctest.Wait()
	if got, n := cc.last(); got != addresses || n != updates {
		t.Fatalf("told %q in %d updates, want %q in %d", got, n, addresses, updates)
	}
}

func TestResolverFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := memory.NewDecider()
		cc, r := build(t, legrpc.NewBuilder(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S, Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil))
		expect(t, cc, "never", 0)
		first := record(1, "a", "10.0.0.1:1", "[::1]:2")
		d.Replace(first)
		expect(t, cc, "10.0.0.1:1 [::1]:2", 1)

		// Extensions are no news to gRPC.
		for range 5 {
			time.Sleep(7 * time.Second)
			first.Extension++
			first.TermExpiry = time.Now().Add(15 * time.Second)
			d.Replace(first)
		}
		expect(t, cc, "10.0.0.1:1 [::1]:2", 1)

		// A term that runs out takes the addresses away at TermExpiry + S, and
		// an extension that comes late brings them back.
		time.Sleep(16*time.Second - time.Millisecond)
		expect(t, cc, "10.0.0.1:1 [::1]:2", 1)
		time.Sleep(time.Millisecond)
		expect(t, cc, "", 2)
		first.Extension++
		first.TermExpiry = time.Now().Add(15 * time.Second)
		d.Replace(first)
		expect(t, cc, "10.0.0.1:1 [::1]:2", 3)

		gone := first.Clone()
		gone.LeaderID, gone.HostPort, gone.Extension = "", nil, 99
		d.Replace(gone)
		expect(t, cc, "", 4)

		second := record(2, "b", "10.0.0.2:1")
		second.ConnectionParams = []byte(`{"methodConfig": []}`)
		d.Replace(second)
		expect(t, cc, "10.0.0.2:1", 5)
		if c := cc.states[4].ServiceConfig; c == nil || c.Config.(parsed).s != `{"methodConfig": []}` {
			t.Errorf("service config %v", c)
		}

		for i, bad := range []*le.RaceEntry{record(3, "c", "nonsense"), record(4, "c"), record(5, "c", "a/b:1", ":1", "169.254.169.254:80")} {
			d.Replace(bad)
			expect(t, cc, "", 6+i)
		}
		odd := record(6, "d", "nonsense", "[fe80::1]:80", "10.0.0.4:1")
		odd.ConnectionParams = []byte("opaque")
		d.Replace(odd)
		expect(t, cc, "10.0.0.4:1", 9)
		if cc.states[8].ServiceConfig != nil {
			t.Errorf("service config %v", cc.states[8].ServiceConfig)
		}
		r.Close()
		d.Replace(record(7, "e", "10.0.0.5:1"))
		expect(t, cc, "10.0.0.4:1", 9)
		for _, want := range []string{"no HostPort in its record", "is not a host and a port", "are no service config", `HostPort \"nonsense\"`} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q: %s", want, log.String())
			}
		}
	})
}

// With the store gone the last known leader is kept until its term has run out.
func TestResolverWithoutTheStore(t *testing.T) {
	for _, kind := range []string{"pushed", "polled"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memory.NewDecider()
				mine := d.Handle()
				var decider le.RaceDecider = mine
				if kind == "polled" {
					decider = mine.Polled()
				}
				lost := memory.LoseRequests()
				mine.Inject(lost)
				b := of(decider)
				cc, _ := build(t, b)
				time.Sleep(time.Second)
				late, _ := build(t, b) // is told what the channel before it was
				synctest.Wait()
				for _, cc := range []*told{cc, late} {
					if _, n := cc.last(); n != 0 || len(cc.errs) == 0 || !strings.Contains(cc.errs[0].Error(), "cannot be read") {
						t.Fatalf("%d updates, errors %v", n, cc.errs)
					}
				}
				d.Replace(record(1, "a", "10.0.0.1:1"))
				mine.Inject(nil)
				begin := time.Now()
				for {
					synctest.Wait()
					if _, n := cc.last(); n > 0 {
						break
					}
					if time.Since(begin) > 10*time.Second {
						t.Fatal("it does not recover")
					}
					time.Sleep(100 * time.Millisecond)
				}
				mine.Inject(lost)
				before := cc.failures()
				end := d.Entry().TermExpiry.Add(S)
				time.Sleep(time.Until(end) - time.Millisecond)
				expect(t, cc, "10.0.0.1:1", 1)
				if more := cc.failures() - before; more > 0 {
					t.Errorf("while a leader is known it is told of %d failures", more)
				}
				time.Sleep(time.Millisecond)
				expect(t, cc, "", 2)
			})
		})
	}
}

// Closed while the store hangs and does not heed its ctx, it does not hang too.
func TestResolverCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		d := memory.NewDecider()
		d.Inject(func(memory.Op) memory.Fault { return memory.Fault{Hang: hang} })
		_, r := build(t, of(d.Polled()))
		synctest.Wait()
		begin := time.Now()
		r.Close()
		if took := time.Since(begin); took > 300*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		close(hang)
		synctest.Wait()
	})
}

// All channels of a Builder, and of those made of it, have one watch, from the first to the last.
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
			cc, r := build(t, builders[len(open)%len(builders)])
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
		for _, r := range open[1:] {
			r.Close()
		}
		all, open = all[:1], open[:1]
		d.Replace(record(3, "c", "10.0.0.3:1"))
		time.Sleep(3 * time.Second)
		expectAll("10.0.0.3:1")
		open[0].Close()
		before := reads.Load()
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

// Calls go to the addresses that are chosen and allowed (see route.TestAddresses). What a leader announces while
// it leads is followed.
func TestAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		b := of(d.Handle())
		named, _ := build(t, b.With(&legrpc.BuilderOptions{Addresses: legrpc.Named("orders"), ServerName: func(e le.RaceEntry) string { return e.LeaderID }}))
		ours, _ := build(t, b.With(&legrpc.BuilderOptions{Addresses: legrpc.Port("9000"), CheckAddress: func(hostPort string) error {
			if hostPort != "10.0.0.1:9000" {
				return errors.New("none of ours")
			}
			return nil
		}}))
		e := record(1, "a", "10.0.0.1:80", "10.0.0.1:9000")
		announce := func(params string, hostPort ...string) {
			e.Extension++
			e.ConnectionParams, e.HostPort = []byte(params), hostPort
			d.Replace(e)
		}
		announce(`{"addresses": {"orders": ["10.0.0.1:7", "169.254.169.254:80"]}}`, "10.0.0.1:80", "10.0.0.1:9000")
		expect(t, named, "10.0.0.1:7", 1)
		expect(t, ours, "10.0.0.1:9000", 1)
		if name := named.states[0].Addresses[0].ServerName; name != "a" {
			t.Errorf("the certificate is to have %q", name)
		}
		announce(`{"methodConfig": []}`, "10.0.0.1:80", "10.0.0.1:9000")
		expect(t, named, "", 2)
		expect(t, ours, "10.0.0.1:9000", 2) // for the new service config
		if c, ok := ours.states[1].ServiceConfig.Config.(parsed); !ok || c.s != `{"methodConfig": []}` {
			t.Errorf("service config %v", ours.states[1].ServiceConfig)
		}
		announce(`{"addresses": {"orders": ["10.0.0.9:7"]}}`, "10.0.0.9:9000")
		expect(t, named, "10.0.0.9:7", 3)
		expect(t, ours, "", 3)
	})
}

func TestWrongWatchConfig(t *testing.T) {
	if _, err := legrpc.NewBuilder(le.WatchConfig{}, nil).Build(resolver.Target{}, &told{}, resolver.BuildOptions{}); err == nil || !strings.Contains(err.Error(), "Decider is nil") {
		t.Error(err)
	}
}

// A connection that breaks is a reason to read, for all channels at once, and not more than once a second.
func TestResolveNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		mine, reads := counted(d)
		cc, r := build(t, legrpc.NewBuilder(le.WatchConfig{Decider: mine.Polled(), MaxClockSkew: S, PollInterval: time.Hour}, nil))
		synctest.Wait()
		before := reads.Load()
		d.Replace(record(1, "a", "10.0.0.1:1"))
		for range 100 {
			r.ResolveNow(resolver.ResolveNowOptions{})
		}
		expect(t, cc, "10.0.0.1:1", 1)
		d.Replace(record(2, "b", "10.0.0.2:1"))
		for range 100 {
			r.ResolveNow(resolver.ResolveNowOptions{})
		}
		time.Sleep(time.Second - time.Millisecond)
		expect(t, cc, "10.0.0.1:1", 1)
		time.Sleep(time.Millisecond)
		expect(t, cc, "10.0.0.2:1", 2)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := reads.Load() - before; n != 2 {
			t.Errorf("200 calls of ResolveNow made %d reads, want 2", n)
		}
	})
}
