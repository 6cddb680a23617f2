package legrpc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/legrpc"
	"github.com/c8e606e4/leaderelection/adapters/legrpc/internal/grpctest"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
)

// A leader that relays the refusal of a service behind another election has worked
// on the call: it is not said to be unprocessed, and not sent again.
func TestRelayedRefusalIsNotRepeated(t *testing.T) {
	other := dial(t, serveWith(t, standby(), echo("never"), &legrpc.ServerOptions{Election: "users"}))
	unnamed := dial(t, serveWith(t, standby(), echo("never"), nil))
	var calls atomic.Int32
	for name, c := range map[string]struct {
		server  *grpc.ClientConn // that the leader passes its calls to
		wrapped bool
		exempt  bool // the leader's interceptor lets the method pass
	}{
		"as it is":                   {unnamed, false, false},
		"wrapped":                    {unnamed, true, false},
		"of a named election":        {other, false, false},
		"by a method that is exempt": {unnamed, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			relay := func(ctx context.Context) error {
				calls.Add(1)
				_, err := say(ctx, c.server, "x")
				if c.wrapped {
					err = fmt.Errorf("asking the other service: %w", err)
				}
				return err
			}
			leader := &service{
				Say:  func(ctx context.Context, _ string) (string, error) { return "", relay(ctx) },
				Talk: func(s grpc.ServerStream) error { return relay(s.Context()) },
			}
			o := &legrpc.ServerOptions{}
			if c.exempt {
				o.Exempt = func(string) bool { return true }
			}
			conn := dial(t, serveWith(t, leading(), leader, o), retrying(nil)...)
			for kind, call := range map[string]func() error{
				"unary":  func() error { _, err := say(t.Context(), conn, "x"); return err },
				"stream": func() error { _, err := once(t.Context(), conn, "x"); return err },
			} {
				calls.Store(0)
				err := call()
				if r, is := legrpc.RefusalOf(err); is || status.Code(err) != codes.FailedPrecondition || calls.Load() != 1 || !strings.Contains(err.Error(), "does not lead") {
					t.Errorf("%s: %v, a refusal: %v %+v; worked on %d times", kind, err, is, r, calls.Load())
				}
			}
		})
	}
	// A leader without the interceptors: the election's name tells.
	bare := dial(t, serveWith(t, standby(), echo("never"), &legrpc.ServerOptions{Election: "users"}), retrying(&legrpc.ClientOptions{Election: "orders", Wait: time.Hour})...)
	_, err := say(t.Context(), bare, "x")
	if r, is := legrpc.RefusalOf(err); !is || r.Election != "users" {
		t.Errorf("%v, %+v", err, r)
	}
}

// Of all errors only a refusal before any work is sent again, and that until the
// server leads or patience ends.
func TestClientRepeatsOnlyWhatWasNotProcessed(t *testing.T) {
	var calls atomic.Int32
	answer := func() error { return nil }
	l := leading()
	conn := dial(t, serveWith(t, l, &service{
		Say: func(_ context.Context, in string) (string, error) { calls.Add(1); return in, answer() },
		Talk: func(s grpc.ServerStream) error {
			calls.Add(1)
			in := new(wrapperspb.StringValue)
			if err := s.RecvMsg(in); err != nil {
				return err
			}
			if err := answer(); err != nil {
				return err
			}
			return s.SendMsg(in)
		},
	}, &legrpc.ServerOptions{Election: "orders"}), retrying(&legrpc.ClientOptions{Election: "orders", Wait: time.Minute})...)
	for kind, call := range map[string]func(context.Context) (string, error){
		"unary":  func(ctx context.Context) (string, error) { return say(ctx, conn, "hello") },
		"stream": func(ctx context.Context) (string, error) { return once(ctx, conn, "hello") },
	} {
		t.Run(kind, func(t *testing.T) {
			calls.Store(0)
			for _, own := range []error{status.Error(codes.FailedPrecondition, "own"), status.Error(codes.Unavailable, "own")} {
				answer = func() error { return own }
				if _, err := call(t.Context()); status.Code(err) != status.Code(own) {
					t.Errorf("%v became %v", own, err)
				}
			}
			if n := calls.Load(); n != 2 {
				t.Errorf("two calls were worked on %d times", n)
			}
			answer = func() error { over(l); return nil }
			_, err := call(t.Context())
			if r, is := legrpc.RefusalOf(err); !is || !r.Processed || calls.Load() != 3 {
				t.Errorf("overtaken by the end: %v, %+v, worked on %d times in all", err, r, calls.Load())
			}

			answer = func() error { return nil }
			l.SetStatus(le.Following)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := call(ctx); err == nil || calls.Load() != 3 {
				t.Errorf("%v, worked on %d times in all", err, calls.Load())
			}
			time.AfterFunc(100*time.Millisecond, func() { lead(l) })
			if _, err := call(t.Context()); err != nil || calls.Load() != 4 {
				t.Errorf("when it leads again: %v, worked on %d times in all", err, calls.Load())
			}
		})
	}
}

// hung is a server that takes calls, and does not answer.
func hung(t *testing.T) (address string, called chan struct{}) {
	t.Helper()
	called = make(chan struct{}, 10)
	over := make(chan struct{})
	address = serve(t, leading(), &service{Say: func(context.Context, string) (string, error) {
		called <- struct{}{}
		<-over // whatever its ctx says
		return "", nil
	}})
	t.Cleanup(func() { close(over) })
	return address, called
}

// Calls leave a leader that is silent when the next one is there. (TestDeposedLinksAreLeft: those of a leader
// that is still at work are left alone.)
func TestCallsLeaveAHungLeader(t *testing.T) {
	d := memory.NewDecider()
	conn := follow(t, d.Handle(), S)
	address, called := hung(t)
	d.Replace(record(1, "a", address))
	told := make(chan error)
	go func() { _, err := say(t.Context(), conn, "x", grpc.WaitForReady(true)); told <- err }()
	<-called
	d.Replace(record(2, "b", serve(t, leading(), echo("b"))))
	if err := <-told; status.Code(err) != codes.Unavailable {
		t.Errorf("the call at the hung leader: %v", err)
	}
	if out, err := say(t.Context(), conn, "x", grpc.WaitForReady(true)); out != "b x" {
		t.Errorf("the next call: %q, %v", out, err)
	}
}

// The process behind the leader's first address may be another: the next is used.
func TestCallsGoToTheAddressThatLeads(t *testing.T) {
	d := memory.NewDecider()
	conn := follow(t, d.Handle(), S)
	d.Replace(record(1, "b", serve(t, standby(), echo("wrong")), serve(t, leading(), echo("right"))))
	for range 3 {
		if out, err := say(t.Context(), conn, "x", grpc.WaitForReady(true)); out != "right x" {
			t.Errorf("%q, %v", out, err)
		}
	}
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
				server.RegisterService(&grpctest.Description, &service{Say: func(ctx context.Context, in string) (string, error) {
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
				b := of(d.Handle())
				conn := through(t, p, "leaderelection:///orders", b.DialOptions(&legrpc.ClientOptions{Keepalive: c.every})...)
				if out, err := say(t.Context(), conn, "slow", grpc.WaitForReady(true)); out != "slow" || err != nil {
					t.Errorf("a slow leader: %q, %v", out, err)
				}
				time.AfterFunc(time.Second, p.Cut)
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				_, err := say(ctx, conn, "lost", grpc.WaitForReady(true))
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

// With a ServerName each leader must show a certificate of its own: one that was deposed
// answers for nobody, not even at the same address.
func TestACertificateForEachLeader(t *testing.T) {
	pool := x509.NewCertPool()
	at := map[string]string{}
	for _, name := range []string{"a", "b"} {
		cert := routetest.Certificate(t, name, pool)
		at[name] = grpctest.Start(t, grpctest.Listen(t), grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert))), echo(name))
	}
	d := memory.NewDecider()
	b := of(d.Handle()).With(&legrpc.BuilderOptions{ServerName: func(e le.RaceEntry) string { return e.LeaderID }})
	conn := dial(t, "leaderelection:///orders", append(b.DialOptions(nil), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool})))...)
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

// load makes calls.
type load struct {
	routetest.Load
	conn    *grpc.ClientConn
	refused atomic.Int64
}

func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		before := l.Greatest.Load()
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		text, err := say(call, l.conn, "", grpc.WaitForReady(true))
		cancel()
		var number uint64
		if _, is := legrpc.RefusalOf(err); is || status.Code(err) == codes.Unavailable {
			l.refused.Add(1)
			continue
		}
		if err == nil {
			_, err = fmt.Sscan(text, &number)
		}
		if err != nil {
			l.Fault("%v", err)
			continue
		}
		l.Answer(before, number)
	}
}

// await returns when n more calls have been answered.
func (l *load) await(n int64) {
	for target := l.Answered.Load() + n; l.Answered.Load() < target; {
		runtime.Gosched()
	}
}

// underLoad makes calls of an election while a dozen leaders go, one after the other, each of which change
// has go in its way. Calls have been answered by the next one when it is called again.
func underLoad(t *testing.T, ids []string, term, skew time.Duration, params string, change func(ctx context.Context, d *memory.Decider, i int, old *candidate, next string)) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d := memory.NewDecider()
	all := map[string]*candidate{}
	for _, id := range ids {
		all[id] = join(t, ctx, d, id, term, skew, params)
	}
	l := &load{conn: follow(t, d.Handle(), skew)}
	working, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { l.run(working) })
	}
	for i := range 12 {
		l.await(20)
		old := d.Entry()
		next := ids[0]
		if next == old.LeaderID {
			next = ids[1]
		}
		was := all[old.LeaderID] // nil: the record is vacant
		change(ctx, d, i, was, next)
		for l.Greatest.Load() <= uint64(old.ElectionNumber) {
			runtime.Gosched()
		}
		l.await(20)
		if was != nil {
			was.store.Inject(nil)
		}
	}
	stop()
	wg.Wait()
	cancel()
	for _, c := range all {
		<-c.campaign.Done()
	}
	t.Logf("%d calls answered, by leaderships up to %d; %d refused after all retries", l.Answered.Load(), l.Greatest.Load(), l.refused.Load())
	l.Report(t)
	return l
}

// Calls follow the leader through hand-overs, and through fail-overs in which the
// leader is cut off from the store while it can still be reached by its clients.
func TestCallsThroughFailovers(t *testing.T) {
	underLoad(t, []string{"a", "b", "c"}, 600*time.Millisecond, 50*time.Millisecond, retry, func(ctx context.Context, d *memory.Decider, i int, old *candidate, next string) {
		if i%5 == 0 && old != nil {
			old.store.Inject(memory.LoseRequests())
		} else if err := le.Transfer(ctx, d, next); err != nil {
			t.Logf("transfer to %s: %v", next, err)
		}
	})
}

// A leader that hands over loses no call, though nothing repeats those that end with Unavailable.
func TestHandOversLoseNothing(t *testing.T) {
	l := underLoad(t, []string{"a", "b"}, time.Hour, S, "", func(ctx context.Context, d *memory.Decider, _ int, _ *candidate, next string) {
		if err := le.Transfer(ctx, d, next); err != nil {
			t.Fatal(err)
		}
	})
	if n := l.refused.Load(); n > 0 {
		t.Errorf("%d of %d calls were lost", n, n+l.Answered.Load())
	}
}

// A channel in a candidate's process goes on following the election after the campaign has ended, and
// uses the same Decider. Its calls wait for the next leader without an option.
func TestCallsFollowAfterTheOwnCampaign(t *testing.T) {
	d := memory.NewDecider()
	ctx, cancel := context.WithCancel(t.Context())
	a := join(t, ctx, d, "a", time.Hour, S, retry)
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
	b := join(t, ctx, d, "b", time.Hour, S, retry)
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
				grpc.WithResolvers(of(d.Handle())))
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
