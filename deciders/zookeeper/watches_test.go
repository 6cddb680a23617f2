package zookeeper_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/c8e606e4/leaderelection/deciders/zookeeper"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// A client that finds its server again says from which transaction on it watches: from the last
// that it knew before. Requests that wait for the connection are answered only after that. The
// race detector sees it otherwise, in one of some hundred connections.
func TestWatchesComeFirst(t *testing.T) {
	addr := stores.ZooKeeper(t).Addr
	var cuts [2]*cut // of two addresses the client tries the other one at once
	for i := range cuts {
		cuts[i] = cuttable(t, addr)
	}
	conn, err := zookeeper.Connect([]string{cuts[0].addr, cuts[1].addr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/watched", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		_, _, watch, err := conn.GetW("/watched")
		if err != nil {
			continue
		}
		var all sync.WaitGroup
		for _, c := range cuts {
			c.cut()
		}
		for range 4 {
			all.Go(func() {
				for range 20 {
					_, _, _ = conn.Exists("/")
				}
			})
		}
		all.Wait()
		select {
		case e := <-watch:
			t.Errorf("the watch is over: %v", e)
		default:
		}
	}
}

// cut is an address whose connections are cut.
type cut struct {
	addr string
	mu   sync.Mutex
	open []net.Conn
}

// cut ends all connections.
func (c *cut) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.open {
		_ = one.Close()
	}
	c.open = nil
}

// cuttable passes everything on to addr until the test ends.
func cuttable(t *testing.T, addr string) *cut {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cut{addr: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			c.mu.Lock()
			c.open = append(c.open, in, out)
			c.mu.Unlock()
			all.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			all.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		all.Wait()
	})
	return c
}
