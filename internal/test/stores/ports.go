package stores

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Servers that name one another must be told their ports before they listen, seconds before on
// a busy machine. A port that the kernel picks is one of those that it gives to outgoing
// connections as well, of which tests make hundreds a second, so another had it at times
// when the server came to listen. These are of a range below it, in blocks: a process holds
// the first port of its block for as long as it lives, and no other process uses the rest.
const (
	firstPort, endPort = 10240, 32768 // of Linux, ip_local_port_range begins at 32768; of others, later
	portBlock          = 256
)

var ports struct {
	sync.Mutex
	held []net.Listener // one for each block
	base int            // of the newest block
	next int            // the next port of it to be tried, from base
}

// FreePort returns a TCP port of the loopback interface that is free now, and that neither
// an outgoing connection nor another process that calls FreePort takes. One that was
// returned is returned again when all others of the process's block have been.
func FreePort(t testing.TB) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range (endPort - firstPort) / portBlock {
		for range portBlock - 1 {
			if ports.base == 0 {
				break
			}
			port := ports.base + ports.next
			ports.next = ports.next%(portBlock-1) + 1
			if l := listenOn(port); l != nil {
				_ = l.Close()
				return port
			}
		}
		// All are in use: the process takes a block, one more if it has one.
		ports.base, ports.next = firstPort+portBlock*rand.IntN((endPort-firstPort)/portBlock), 1
		if l := listenOn(ports.base); l != nil {
			ports.held = append(ports.held, l)
		} else {
			ports.base = 0
		}
	}
	t.Fatalf("stores: no port from %d to %d is free", firstPort, endPort-1)
	return 0
}

func listenOn(port int) net.Listener {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil
	}
	return l
}
