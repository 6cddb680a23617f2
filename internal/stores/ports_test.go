package stores_test

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// A port is another's neither by the kernel's choice, nor since all of the process's
// block have been asked for: those that are in use are passed over.
func TestFreePort(t *testing.T) {
	const n = 400 // more than a block has
	seen := map[int]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			port := stores.FreePort(t)
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[port] || port >= 32768 {
				t.Errorf("port %d, seen before: %v, %v", port, seen[port], err)
				return
			}
			seen[port] = true
			t.Cleanup(func() { l.Close() })
		})
	}
	wg.Wait()
}
