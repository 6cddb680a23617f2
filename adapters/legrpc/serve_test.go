package legrpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/legrpc"
	"github.com/c8e606e4/leaderelection/adapters/legrpc/internal/grpctest"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
)

// served starts Serve in a bubble, and returns what ends its server, and its result.
func served(c le.Candidate, p *routetest.Pipes, s *service, o *legrpc.ServerOptions) (end func(), result <-chan error) {
	server := behind(c, o)
	server.RegisterService(&grpctest.Description, s)
	ended, told := make(chan struct{}), make(chan error, 1)
	go func() { told <- legrpc.Serve(server, p, ended) }()
	return func() { close(ended) }, told
}

// A server whose campaign has ended refuses calls until its last client knows that, and ends then.
func TestServeLingersUntilItsClientsHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, p, l := memory.NewDecider(), routetest.NewPipes(), leading()
		end, result := served(l, p, echo("a"), nil)
		d.Replace(record(1, "a", "10.0.0.1:1"))
		late := d.Handle() // a client whose news come late
		conn := through(t, p, "leaderelection:///orders", of(late).DialOptions(&legrpc.ClientOptions{Wait: -1})...)
		if out, err := say(t.Context(), conn, "x"); err != nil {
			t.Fatal(out, err)
		}
		over(l)
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
		l.SetStatus(le.Draining)
		time.AfterFunc(le.DefaultTermLength, func() { l.SetStatus(le.Leading) })
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
				finish, told := make(chan struct{}), make(chan error)
				end, result := served(l, p, &service{Say: func(context.Context, string) (string, error) {
					<-finish
					return "", nil
				}}, &legrpc.ServerOptions{Exempt: func(string) bool { return true }})
				conn := through(t, p, "passthrough:///a")
				go func() { told <- call(t.Context(), conn) }()
				synctest.Wait()
				over(l)
				begin := time.Now()
				end()
				if err := <-result; err != nil || time.Since(begin) != 6*S {
					t.Errorf("it ended after %v: %v", time.Since(begin), err)
				}
				if err := <-told; status.Code(err) != codes.Unavailable {
					t.Errorf("the client is told %v", err)
				}
				close(finish)
				_ = conn.Close()
			})
		})
	}
}

// If the listener fails, Serve tells so at once.
func TestServeTellsOfABrokenListener(t *testing.T) {
	p := routetest.NewPipes()
	_ = p.Close()
	if err := legrpc.Serve(grpc.NewServer(), p, nil); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// restartDir makes the test binary a server, of an election in that directory.
const restartDir = "LEGRPC_TEST_RESTARTS"

// restartAddress is where clients reach such a server: a relay, maybe.
const restartAddress = "LEGRPC_TEST_ADDRESS"

// serveProcess is such a server. It says by its standard output where it listens, and ends by SIGTERM.
func serveProcess(dir, address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // not to outlive the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	book, err := os.OpenFile(filepath.Join(dir, "book"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer book.Close()
	campaign, err := le.Config{
		Decider: file.NewDecider(filepath.Join(dir, "election.json"), nil), LeaderID: address, HostPort: []string{address},
		TermLength:   time.Hour,              // a busy machine costs no leadership
		PollInterval: 100 * time.Millisecond, // for systems on which a file is not watched
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		OnElected:    func(context.Context, *le.TimeView) {},
	}.Start(ctx)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(campaign, nil)))
	server.RegisterService(&grpctest.Description, &service{Say: func(ctx context.Context, in string) (string, error) {
		token := fmt.Sprint(uint64(le.ViewFrom(ctx).ElectionNumber()))
		<-time.After(3 * time.Millisecond) // so that some calls are under way whenever it is stopped
		_, err := fmt.Fprintln(book, token, in)
		return token, err
	}})
	fmt.Println(listener.Addr())
	err = legrpc.Serve(server, listener, campaign.Done())
	stop()
	if over := campaign.Wait(); !errors.Is(over, context.Canceled) {
		err = errors.Join(err, over)
	}
	return err
}

// process is a running server.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr strings.Builder
	relay  net.Listener
	done   sync.WaitGroup // of the relay
}

// begin starts one. A round trip of its clients takes rtt longer than on the loopback.
func begin(t *testing.T, dir string, rtt time.Duration) *process {
	t.Helper()
	relay := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	self := must(os.Executable())(t)
	p := &process{cmd: exec.Command(self), relay: relay}
	p.cmd.Env = append(os.Environ(), restartDir+"="+dir, restartAddress+"="+relay.Addr().String())
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = p.cmd.Wait()
		t.Fatal(err, p.stderr.String())
	}
	p.done.Go(func() {
		for {
			conn, err := relay.Accept()
			if err != nil {
				return
			}
			p.done.Go(func() { pass(conn, strings.TrimSpace(address), rtt/2) })
		}
	})
	return p
}

// end stops it as an orchestrator does, and returns when it is gone.
func (p *process) end(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.stderr.String())
	}
	_ = p.relay.Close()
	p.done.Wait()
}

// pass passes a connection on to an address. What it passes takes delay.
func pass(conn net.Conn, address string, delay time.Duration) {
	defer conn.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	both.Go(func() { copyLate(to, conn, delay) })
	both.Go(func() { copyLate(conn, to, delay) })
	both.Wait()
}

// copyLate copies, and then ends both: what was read by then has been written, or cannot be any more.
func copyLate(to, from net.Conn, delay time.Duration) {
	type part struct {
		text []byte
		due  time.Time
	}
	parts := make(chan part, 10_000)
	go func() {
		defer close(parts)
		for {
			text := make([]byte, 16<<10)
			n, err := from.Read(text)
			if err != nil {
				parts <- part{due: time.Now().Add(delay)}
				return
			}
			parts <- part{text[:n], time.Now().Add(delay)}
		}
	}()
	for p := range parts {
		if delay > 0 {
			<-time.After(time.Until(p.due))
		}
		if len(p.text) > 0 {
			_, _ = to.Write(p.text)
		}
	}
	_ = to.(*net.TCPConn).CloseWrite()
}

// Nothing is lost when the leader is restarted: each call is answered, and worked on exactly once, in
// the order of the leaderships. The calls have no options, and no program has a lock.
func TestRestartsLoseNothing(t *testing.T) {
	restarts(t, 3, 300, 0)
}

func TestHundredRestartsLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: a hundred restarts of real processes take a minute")
	}
	for _, rtt := range []time.Duration{0, 10 * time.Millisecond} {
		t.Run("round trip "+rtt.String(), func(t *testing.T) { restarts(t, 100, 10_000, rtt) })
	}
}

// restarts restarts the leader n times, while clients make calls, at least so many in all.
func restarts(t *testing.T, n, calls int, rtt time.Duration) {
	if runtime.GOOS == "windows" {
		t.Skip("no process can be asked to end there")
	}
	dir := t.TempDir()
	election := file.NewDecider(filepath.Join(dir, "election.json"), nil)
	watch := le.WatchConfig{Decider: election, PollInterval: 100 * time.Millisecond}
	running := map[string]*process{}
	join := func() {
		p := begin(t, dir, rtt)
		running[p.relay.Addr().String()] = p
	}
	join()
	join()

	var watching sync.WaitGroup
	ctx, unwatch := context.WithCancel(t.Context())
	leaders := make(chan string, 10*n+100)
	watching.Go(func() {
		_ = watch.Watch(ctx, func(_ context.Context, e le.RaceEntry) { leaders <- e.LeaderID })
	})

	conn := dial(t, "leaderelection:///test", legrpc.NewBuilder(watch, nil).DialOptions(nil)...)
	var stop atomic.Bool
	var made, answered atomic.Int64
	var slowest atomic.Int64
	var clients sync.WaitGroup
	var lost sync.Map // calls that were not answered, and why
	progress := make(chan struct{}, 1)
	for range 8 {
		clients.Go(func() {
			for !stop.Load() {
				call := fmt.Sprint(made.Add(1))
				begun := time.Now()
				if _, err := say(t.Context(), conn, call); err != nil {
					lost.Store(call, err)
				}
				answered.Add(1)
				for took, old := int64(time.Since(begun)), slowest.Load(); took > old && !slowest.CompareAndSwap(old, took); old = slowest.Load() {
				}
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	each := int64(calls / n)
	for range n {
		for target := answered.Load() + each; answered.Load() < target; {
			<-progress
		}
		leader := <-leaders
		for running[leader] == nil || len(leaders) > 0 { // a vacancy, or one that has gone since
			leader = <-leaders
		}
		old := running[leader]
		delete(running, leader)
		old.end(t)
		join()
	}
	stop.Store(true)
	clients.Wait()
	unwatch()
	watching.Wait()
	for _, p := range running {
		p.end(t)
	}

	lost.Range(func(call, err any) bool {
		t.Errorf("call %v was lost: %v", call, err)
		return true
	})
	book := must(os.ReadFile(filepath.Join(dir, "book")))(t)
	times := map[string]int{}
	var newest uint64
	for line := range strings.Lines(string(book)) {
		var token uint64
		var call string
		if _, err := fmt.Sscan(line, &token, &call); err != nil {
			t.Fatal(err)
		}
		if times[call]++; token < newest {
			t.Errorf("call %s was worked on with token %d after one with token %d", call, token, newest)
		}
		newest = max(newest, token)
	}
	for call := range made.Load() {
		if n := times[fmt.Sprint(call+1)]; n != 1 {
			t.Errorf("call %d was worked on %d times", call+1, n)
		}
	}
	t.Logf("%d calls and %d restarts; the slowest call took %v", made.Load(), n, time.Duration(slowest.Load()).Round(time.Millisecond))
}
