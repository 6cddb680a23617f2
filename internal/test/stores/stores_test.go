package stores_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection/internal/test/fleet"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// listener is a server that runs this test binary again, as a child of a shell,
// so that a whole group must die.
func listener(t *testing.T) *stores.Process {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return stores.Start(t, stores.Program{
		Name:    "listener",
		Env:     []string{"STORES_TEST_LISTEN=1"},
		Command: func(port int) []string { return []string{"sh", "-c", fmt.Sprintf("%s %d; true", exe, port)} },
	})
}

func TestMain(m *testing.M) {
	if os.Getenv("STORES_TEST_LISTEN") != "" {
		l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		for {
			c, err := l.Accept()
			if err != nil {
				os.Exit(1)
			}
			_ = c.Close()
		}
	}
	os.Exit(m.Run())
}

func TestStopKillsTheGroup(t *testing.T) {
	s := listener(t)
	s.Stop()
	s.Stop()
	if c, err := net.Dial("tcp", s.Addr); err == nil {
		c.Close()
		t.Errorf("%s still listens", s.Addr)
	}
}

// A server dies with the test process, also where that is killed.
func TestServerDiesWithTheTestProcess(t *testing.T) {
	if addr := os.Getenv("STORES_TEST_ORPHAN"); addr != "" {
		s := listener(t)
		fmt.Println("listening on", s.Addr)
		select {} // until killed
	}
	parent := fleet.Again(t, "^"+t.Name()+"$", "STORES_TEST_ORPHAN=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	if _, err := fmt.Fscanf(out, "=== RUN   "+t.Name()+"\nlistening on %s\n", &addr); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for again := time.NewTicker(10 * time.Millisecond); ; {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if ctx.Err() != nil {
			t.Fatalf("%s still listens (%v)", addr, err)
		}
		if err != nil {
			return
		}
		c.Close()
		<-again.C
	}
}

// missing records what Missing does to a test.
type missing struct {
	testing.TB
	failed, skipped string
}

func (m *missing) Helper() {}
func (m *missing) Fatalf(format string, args ...any) {
	m.failed = fmt.Sprintf(format, args...)
	panic(errEnded)
}
func (m *missing) Skipf(format string, args ...any) {
	m.skipped = fmt.Sprintf(format, args...)
	panic(errEnded)
}

var errEnded = errors.New("the test has ended")

func TestMissingSkipsButFailsInCI(t *testing.T) {
	for ci, wantFailed := range map[string]bool{"": false, "false": false, "true": true} {
		t.Setenv("CI", ci)
		m := &missing{TB: t}
		func() {
			defer func() {
				if p := recover(); p != errEnded {
					t.Errorf("CI=%q: the test went on: %v", ci, p)
				}
			}()
			stores.Need(m, "no-such-program-anywhere")
		}()
		if failed := m.failed != ""; failed != wantFailed || failed == (m.skipped != "") || !strings.Contains(m.failed+m.skipped, "no-such-program") {
			t.Errorf("CI=%q: failed %q, skipped %q", ci, m.failed, m.skipped)
		}
	}
}

// A port is of none that the kernel gives to connections, and nobody's who asked before:
// those in use are passed over when all of the process's block have been asked for.
func TestFreePort(t *testing.T) {
	const askers, each = 8, 50 // more than a block has
	var wg sync.WaitGroup
	for range askers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range each {
				port := stores.FreePort(t)
				l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil || port >= 32768 {
					t.Errorf("port %d: %v", port, err)
					return
				}
				t.Cleanup(func() { l.Close() })
			}
		}()
	}
	wg.Wait()
}

// A relay that is cut lets nothing through, closes nothing, and loses nothing. One that refuses closes,
// one that severs closes in the middle of a request, and one that is mute holds answers alone.
func TestRelay(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	r := stores.NewRelay(t, echo.Addr().String())
	dial := func() net.Conn {
		c, err := net.Dial("tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	send := func(c net.Conn, text string) {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(c net.Conn, text string) {
		t.Helper()
		b := make([]byte, len(text))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
			t.Fatalf("%q came back for %q: %v", b, text, err)
		}
	}
	quiet := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(make([]byte, 2)); n > 0 || !os.IsTimeout(err) {
			t.Errorf("%d bytes came through, and %v", n, err)
		}
		_ = c.SetReadDeadline(time.Time{})
	}
	ends := func(c net.Conn) {
		t.Helper()
		if got, err := io.ReadAll(c); os.IsTimeout(err) || len(got) > 1 {
			t.Errorf("%q came through, and %v", got, err)
		}
	}
	c := dial()
	send(c, "hi")
	arrives(c, "hi")
	r.Cut()
	late := dial()
	for _, c := range []net.Conn{c, late} {
		send(c, "yo")
		quiet(c)
	}
	r.Heal()
	arrives(c, "yo")
	arrives(late, "yo")
	r.Delay(50 * time.Millisecond)
	begun := time.Now()
	send(c, "hi")
	arrives(c, "hi")
	if took := time.Since(begun); took < 50*time.Millisecond {
		t.Errorf("with a delay of 50 ms an answer took %v", took)
	}
	r.Delay(0)

	r.Mute()
	send(c, "yo")
	quiet(c)
	r.Heal()
	arrives(c, "yo")

	r.Sever(3)
	send(c, "hi")
	arrives(c, "hi")
	send(c, "yo")
	ends(c)
	r.Heal()

	r.Refuse()
	ends(late)
	if c, err := net.Dial("tcp", r.Addr); err == nil {
		c.Close()
		t.Error("a relay that refuses was reached")
	}
	r.Heal()
	c = dial()
	send(c, "hi")
	arrives(c, "hi")

	r.Cut() // the end of the test closes what is held
	send(c, "yo")
	dial()
}
