package stores_test

import (
	"net"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func TestPostgres(t *testing.T) {
	p := stores.Postgres(t)
	for range 2 {
		p.Stop()
		if c, err := net.Dial("tcp", p.Addr); err == nil {
			c.Close()
			t.Fatal("it still listens")
		}
		p.Start(t)
	}
}
