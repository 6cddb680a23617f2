package stores_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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
