package legrpc_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/legrpc"
)

// served starts Serve in a bubble, and returns what ends its server, and its result.
func served(c le.Candidate, p *routetest.Pipes, s *service, o *legrpc.ServerOptions) (end func(), result <-chan error) {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(c, o)),
		grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(c, o)))
	server.RegisterService(&description, s)
	healthpb.RegisterHealthServer(server, legrpc.NewHealth(c))
	ended, told := make(chan struct{}), make(chan error, 1)
	go func() { told <- legrpc.Serve(server, p, ended) }()
	return func() { close(ended) }, told
}

// through returns a channel to p.
func through(t *testing.T, p *routetest.Pipes, target string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.Dial(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// A server whose campaign has ended refuses calls until its last client knows that, and ends then.
func TestServeLingersUntilItsClientsHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, l := memory.NewDecider(), routetest.NewPipes(), leading()
		end, result := served(l, p, echo("a"), nil)
		d.Replace(record(1, "a", "10.0.0.1:1"))
		late := d.Handle() // a client whose news come late
		conn := through(t, p, "leaderelection:///orders", legrpc.NewBuilder(le.WatchConfig{Decider: late, MaxClockSkew: S}, nil).DialOptions(&legrpc.ClientOptions{Wait: -1})...)
		if out, err := say(t.Context(), conn, "x"); err != nil {
			t.Fatal(out, err)
		}
		l.over()
		end()
		time.Sleep(4 * S)
		ctx, cancel := context.WithTimeout(t.Context(), S)
		defer cancel()
		if _, err := say(ctx, conn, "x"); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a call after the campaign's end: %v", err)
		}
		select {
		case err := <-result:
			t.Errorf("it has left a client: %v", err)
		default:
		}
		d.Replace(record(2, "")) // released
		begin := time.Now()
		if err := <-result; err != nil || time.Since(begin) != 0 {
			t.Errorf("it ended %v after its client knew: %v", time.Since(begin), err)
		}
		_ = conn.Close()
	})
}

// A call that comes while the leader drains waits for as long as that takes.
func TestCallsWaitForALongDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := routetest.NewPipes(), leading()
		end, result := served(l, p, echo("a"), nil)
		conn := through(t, p, "passthrough:///a", retrying(nil)...)
		l.set(func() { l.status = le.Draining })
		time.AfterFunc(le.DefaultTermLength, func() { l.set(func() { l.status = le.Leading }) })
		begin := time.Now()
		if out, err := say(t.Context(), conn, "x"); out != "a x" || err != nil || time.Since(begin) > le.DefaultTermLength+S {
			t.Errorf("after %v: %q, %v", time.Since(begin), out, err)
		}
		_ = conn.Close()
		end()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// Clients that do not follow the election are left in the end, with their calls: a Watch of the health service, and an
// exempt call whose handler does not end.
func TestServeLeavesClientsThatStay(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, conn *grpc.ClientConn) error{
		"a watch": func(ctx context.Context, conn *grpc.ClientConn) error {
			watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
			for err == nil {
				_, err = watch.Recv()
			}
			return err
		},
		"a hung call": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := say(ctx, conn, "x")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := routetest.NewPipes(), leading()
				over, told := make(chan struct{}), make(chan error)
				end, result := served(l, p, &service{say: func(context.Context, string) (string, error) {
					<-over
					return "", nil
				}}, &legrpc.ServerOptions{Exempt: func(string) bool { return true }})
				conn := through(t, p, "passthrough:///a")
				go func() { told <- call(t.Context(), conn) }()
				synctest.Wait()
				l.over()
				begin := time.Now()
				end()
				if err := <-result; err != nil || time.Since(begin) != 6*S {
					t.Errorf("it ended after %v: %v", time.Since(begin), err)
				}
				if err := <-told; status.Code(err) != codes.Unavailable {
					t.Errorf("the client is told %v", err)
				}
				close(over)
				_ = conn.Close()
			})
		})
	}
}

// broken is a listener that fails.
type broken struct{ *routetest.Pipes }

var errBroken = errors.New("the listener is broken")

func (broken) Accept() (net.Conn, error) { return nil, errBroken }

// If the listener fails, Serve tells so at once.
func TestServeTellsOfABrokenListener(t *testing.T) {
	if err := legrpc.Serve(grpc.NewServer(), broken{routetest.NewPipes()}, nil); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}
