package stores_test

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

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
