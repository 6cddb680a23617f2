package legrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/legrpc"
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

// build starts a resolver in a bubble.
func build(t *testing.T, w le.WatchConfig) (*told, resolver.Resolver) {
	t.Helper()
	cc := &told{}
	r, err := legrpc.NewBuilder(w, nil).Build(resolver.Target{URL: url.URL{Scheme: "leaderelection"}}, cc, resolver.BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cc, r
}

func expect(t *testing.T, cc *told, addresses string, updates int) {
	t.Helper()
	synctest.Wait()
	if got, n := cc.last(); got != addresses || n != updates {
		t.Fatalf("told %q in %d updates, want %q in %d", got, n, addresses, updates)
	}
}

// Without a Logger the warnings go to slog's default, as the watch's do.
func TestWarningsWithoutALogger(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(old)
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		cc, r := build(t, le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S})
		defer r.Close()
		e := record(1, "a", "10.0.0.1:1")
		e.ConnectionParams = []byte("nonsense")
		d.Replace(e)
		expect(t, cc, "10.0.0.1:1", 1)
	})
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "the leader's ConnectionParams") {
		t.Errorf("logged: %s", got)
	}
}

func TestResolverFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := memory.NewDecider()
		cc, r := build(t, le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S, Logger: slog.New(slog.NewTextHandler(&log, nil))})
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

		for i, bad := range []*le.RaceEntry{record(3, "c", "nonsense"), record(4, "c"), record(5, "c", "a/b:1", ":1")} {
			d.Replace(bad)
			expect(t, cc, "", 6+i)
		}
		odd := record(6, "d", "nonsense", "10.0.0.4:1")
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
				cc, r := build(t, le.WatchConfig{Decider: decider, MaxClockSkew: S})
				defer r.Close()
				time.Sleep(time.Second)
				synctest.Wait()
				if _, n := cc.last(); n != 0 || len(cc.errs) == 0 || !strings.Contains(cc.errs[0].Error(), "cannot be read") {
					t.Fatalf("%d updates, errors %v", n, cc.errs)
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

func TestResolveNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		mine, reads := counted(d)
		cc, r := build(t, le.WatchConfig{Decider: mine.Polled(), MaxClockSkew: S, PollInterval: time.Hour})
		defer r.Close()
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

// Closed while the store hangs and does not heed its ctx, it does not hang too.
func TestResolverCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		d := memory.NewDecider()
		d.Inject(func(memory.Op) memory.Fault { return memory.Fault{Hang: hang} })
		_, r := build(t, le.WatchConfig{Decider: d.Polled()})
		r.ResolveNow(resolver.ResolveNowOptions{})
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

func TestWrongWatchConfig(t *testing.T) {
	conn, err := grpc.NewClient("leaderelection:///x", grpc.WithResolvers(legrpc.NewBuilder(le.WatchConfig{}, nil)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		defer conn.Close()
		_, err = say(t.Context(), conn, "x")
	}
	if err == nil {
		t.Error("no error")
	}
	if _, err := legrpc.NewBuilder(le.WatchConfig{}, nil).Build(resolver.Target{}, &told{}, resolver.BuildOptions{}); err == nil || !strings.Contains(err.Error(), "Decider is nil") {
		t.Error(err)
	}
}

// Calls wait or fail while nobody leads, as their caller chose.
func TestCallsWithoutALeader(t *testing.T) {
	d := memory.NewDecider()
	conn := dial(t, "leaderelection:///test", grpc.WithResolvers(legrpc.NewBuilder(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S}, nil)))
	e := record(1, "")
	e.LeaderID = ""
	d.Replace(e)
	if _, err := say(t.Context(), conn, "x"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "there is no leader") {
		t.Errorf("a call that does not wait: %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := say(t.Context(), conn, "x", grpc.WaitForReady(true))
		waiting <- err
	}()
	d.Replace(record(2, "a", serve(t, leading(), echo("a"))))
	if err := <-waiting; err != nil {
		t.Errorf("a call that waits: %v", err)
	}
	e.ElectionNumber = 3
	d.Replace(e)
	for { // until the channel knows it, calls reach a
		if _, err := say(t.Context(), conn, "x"); err != nil {
			if !strings.Contains(err.Error(), "there is no leader") {
				t.Errorf("a call after the leader has gone: %v", err)
			}
			break
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := say(ctx, conn, "x", grpc.WaitForReady(true)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a call that waits in vain: %v", err)
	}
}

// A channel in a candidate's process goes on following the election after the campaign has ended, and
// uses the same Decider. Its calls wait for the next leader without an option.
func TestCallsFollowAfterTheOwnCampaign(t *testing.T) {
	d := memory.NewDecider()
	ctx, cancel := context.WithCancel(t.Context())
	a := join(t, ctx, d, "a", time.Hour, S)
	conn := follow(t, a.store, S)
	<-a.elected
	if _, err := say(t.Context(), conn, "x"); err != nil {
		t.Error(err)
	}
	cancel()
	<-a.campaign.Done()
	waiting := make(chan error, 1)
	var out string
	go func() {
		var err error
		out, err = say(t.Context(), conn, "x")
		waiting <- err
	}()
	ctx, cancel = context.WithCancel(t.Context())
	b := join(t, ctx, d, "b", time.Hour, S)
	number := <-b.elected
	if err := <-waiting; err != nil || out != fmt.Sprint(uint64(number)) {
		t.Errorf("a call that waited for token %d: %q, %v", number, out, err)
	}
	cancel()
	<-b.campaign.Done()
}

// However many calls are made while a leader goes, one that does not wait is
// answered by that leader or told that there is none: never anything of gRPC's
// own between the two.
func TestCallsWhileTheLeaderGoes(t *testing.T) {
	for _, policy := range []string{"pick_first", "round_robin"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			d := memory.NewDecider()
			conn := dial(t, "leaderelection:///test",
				grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"`+policy+`": {}}]}`),
				grpc.WithResolvers(legrpc.NewBuilder(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S}, nil)))
			address := serve(t, leading(), echo("a"))
			var wg sync.WaitGroup
			for number := uint64(1); number <= 20; number += 2 {
				vacant := record(number, "")
				d.Replace(vacant)
				for range 4 {
					wg.Go(func() {
						for {
							_, err := say(t.Context(), conn, "x")
							if err != nil && status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "there is no leader") {
								break
							}
							if err != nil {
								t.Errorf("leadership %d: %v", number, err)
								break
							}
						}
					})
				}
				wg.Wait()
				d.Replace(record(number+1, "a", address))
				if _, err := say(t.Context(), conn, "x", grpc.WaitForReady(true)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
