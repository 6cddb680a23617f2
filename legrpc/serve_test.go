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
func served(c le.Candidate, p *routetest.Pipes) (end func(), result <-chan error) {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(c, nil)),
		grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(c, nil)))
	server.RegisterService(&description, echo("a"))
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
		end, result := served(l, p)
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

// Clients that do not follow the election, and a Watch of the health service, are left in the end.
func TestServeLeavesClientsThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := routetest.NewPipes(), leading()
		end, result := served(l, p)
		conn := through(t, p, "passthrough:///a")
		watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		l.over()
		begin := time.Now()
		end()
		if err := <-result; err != nil || time.Since(begin) != 6*S {
			t.Errorf("it ended after %v: %v", time.Since(begin), err)
		}
		_ = conn.Close()
	})
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
