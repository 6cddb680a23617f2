package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/examples/internal/terminals"
	servers "github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
)

func TestMain(m *testing.M) {
	terminals.Main("hotstandby", delayedMain)
	m.Run()
}

// docs/request-router.md, followed word by word.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	page := terminals.Open(t, "request-router.md", "hotstandby")
	one := page.Type(0)
	one.Await("leaderelection: leading")
	two := page.Type(1)
	two.Await("leaderelection: another leads")
	var printed strings.Builder
	curls := 0
	for line := range strings.Lines(page.Here(page.Prints)) {
		urls, is := strings.CutPrefix(line, "$ curl ")
		if !is {
			continue
		}
		if curls++; curls == 2 {
			one.CtrlC()
		}
		printed.WriteString(line)
		for _, url := range strings.Fields(urls) {
			answer, err := http.Get("http://" + url)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Error(err)
			}
			_ = answer.Body.Close()
			printed.Write(text)
		}
	}
	page.Check(printed.String())
	http.DefaultClient.CloseIdleConnections()
	two.CtrlC()
}

// envDelay makes the program one that is some way off: what it is sent, and what it sends, arrives as
// much later.
const envDelay = "HOTSTANDBY_DELAY"

// delayedMain is main, at a distance if that is set.
func delayedMain() {
	d, err := time.ParseDuration(os.Getenv(envDelay))
	if err != nil {
		main()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", os.Getenv("LISTEN"))
	if err == nil {
		err = serve(ctx, &delayed{l.(*net.TCPListener), d})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// delayed is a listener some way off. When the server closes a connection, the client hears of it d
// later, and what it has sent by then is lost.
type delayed struct {
	*net.TCPListener
	d time.Duration
}

func (l *delayed) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	go l.relay(far, c)
	go l.relay(c, far)
	return &remote{near, c}, nil
}

// remote is a connection with the addresses of another.
type remote struct {
	net.Conn
	real net.Conn
}

func (r *remote) LocalAddr() net.Addr  { return r.real.LocalAddr() }
func (r *remote) RemoteAddr() net.Addr { return r.real.RemoteAddr() }

func (l *delayed) relay(to, from net.Conn) {
	type part struct {
		bytes []byte // nil: the end
		at    time.Time
	}
	way := make(chan part, 1000)
	go func() {
		defer close(way)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if n > 0 {
				way <- part{b[:n], time.Now().Add(l.d)}
			}
			if err != nil {
				way <- part{nil, time.Now().Add(l.d)}
				return
			}
		}
	}()
	for p := range way {
		time.Sleep(time.Until(p.at))
		if p.bytes == nil {
			break
		}
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range way { // what is left goes nowhere
	}
}

// instance is a process of the page's program.
type instance struct {
	address string
	cmd     *exec.Cmd
	log     logtest.Log
}

// fleet is three instances, and the clients that write to them.
type fleet struct {
	t         *testing.T
	program   string
	env       []string
	instances []*instance
	decider   leaderelection.RaceDecider
}

func newFleet(t *testing.T, delay time.Duration) *fleet {
	dir := t.TempDir()
	record := filepath.Join(dir, "election.json")
	f := &fleet{t: t, program: filepath.Join(dir, "hotstandby"), decider: file.NewDecider(record, nil), env: append(os.Environ(), "STORE=file://"+record)}
	self, err := os.Executable()
	if err = errors.Join(err, os.Symlink(self, f.program)); err != nil {
		t.Fatal(err)
	}
	if delay > 0 {
		f.env = append(f.env, fmt.Sprint(envDelay, "=", delay))
	}
	for range 3 {
		i := &instance{address: fmt.Sprint("127.0.0.1:", servers.FreePort(t))}
		f.instances = append(f.instances, i)
		f.start(i)
		t.Cleanup(func() {
			_ = i.cmd.Process.Kill()
			_ = i.cmd.Wait()
			if text := i.log.String(); t.Failed() {
				t.Logf("%s:\n%s", i.address, text[max(0, len(text)-5000):])
			}
		})
	}
	return f
}

// start starts an instance, and waits until it listens.
func (f *fleet) start(i *instance) {
	i.cmd = exec.Command(f.program)
	i.cmd.Env = append(f.env[:len(f.env):len(f.env)], "LISTEN="+i.address)
	i.cmd.Stdout, i.cmd.Stderr = &i.log, &i.log
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := i.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	for !f.says(i, "readyz") {
		time.Sleep(10 * time.Millisecond)
	}
}

// says asks a probe of an instance.
func (f *fleet) says(i *instance, probe string) bool {
	res, err := http.Get("http://" + i.address + "/election/" + probe)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// restartLeader restarts the instance that leads, in order.
func (f *fleet) restartLeader() {
	for {
		for _, i := range f.instances {
			if !f.says(i, "leader") {
				continue
			}
			if err := i.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				f.t.Fatal(err)
			}
			if err := i.cmd.Wait(); err != nil {
				f.t.Errorf("%s has ended so: %v", i.address, err)
			}
			f.start(i)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// post makes a POST, and returns an error if nobody says that it was done.
func post(c *http.Client, url string) error {
	res, err := c.Post(url, "text/plain", strings.NewReader("an order"))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), "answered by") {
		return fmt.Errorf("%s %q %v", res.Status, text, err)
	}
	return nil
}

// clients write by each of the ways that the page has, until their ctx ends.
func (f *fleet) clients(ctx context.Context, every time.Duration) (posts map[string]*atomic.Int64, wait func()) {
	router, err := lehttp.Follow(leaderelection.WatchConfig{Decider: f.decider})
	if err != nil {
		f.t.Fatal(err)
	}
	proxy := router.Proxy(nil)
	front, redirect := httptest.NewServer(proxy), httptest.NewServer(router.Redirect(nil))
	kinds := map[string]func(c *http.Client, n int) error{
		"proxy":    func(c *http.Client, _ int) error { return post(c, front.URL+"/orders") },
		"redirect": func(c *http.Client, _ int) error { return post(c, redirect.URL+"/orders") },
		// The instances in turn, as a simple load balancer does: the next if one takes no connection.
		"instances": func(c *http.Client, n int) (err error) {
			for k := range f.instances {
				err = post(c, "http://"+f.instances[(n+k)%len(f.instances)].address+"/orders")
				if !errors.Is(err, syscall.ECONNREFUSED) {
					break
				}
			}
			return err
		},
	}
	posts = map[string]*atomic.Int64{}
	var all sync.WaitGroup
	for kind, do := range kinds {
		n := new(atomic.Int64)
		posts[kind] = n
		all.Go(func() {
			c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
			defer c.CloseIdleConnections()
			var writes sync.WaitGroup
			defer writes.Wait()
			tick := time.NewTicker(every)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				writes.Go(func() {
					if err := do(c, i); err != nil {
						f.t.Errorf("by %s: a POST was lost: %v", kind, err)
					}
					n.Add(1)
				})
			}
		})
	}
	return posts, func() {
		all.Wait()
		front.Close()
		redirect.Close()
		proxy.Close()
		router.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}

// lossless restarts the leader again and again under POSTs, of which none may be lost.
func lossless(t *testing.T, restarts int, delay, every time.Duration) {
	f := newFleet(t, delay)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	posts, wait := f.clients(ctx, every)
	begin := time.Now()
	for range restarts {
		f.restartLeader()
		if t.Failed() {
			break
		}
	}
	stop()
	wait()
	for kind, n := range posts {
		if n.Load() == 0 {
			t.Errorf("by %s: no POST was made", kind)
		}
		t.Logf("%d restarts in %v, %v of delay each way: %d POSTs by %s", restarts, time.Since(begin).Round(time.Second), delay, n.Load(), kind)
	}
}

// No write is lost when the leader is restarted.
func TestRestartsLoseNothing(t *testing.T) { lossless(t, 2, 5*time.Millisecond, 20*time.Millisecond) }

// The same, long enough for what is seldom: 100 restarts, and 10,000 POSTs by each way.
func TestHundredRestartsLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it takes some minutes for each network")
	}
	for name, delay := range map[string]time.Duration{"loopback": 0, "10 ms": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) { lossless(t, 100, delay, 20*time.Millisecond) })
	}
}
