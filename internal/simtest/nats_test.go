//go:build !mutant

package simtest

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

var natsSeeds = flag.Int("natsseeds", 50, "how many seeds to simulate on the real NATS server")

// TestNATS runs the same simulations, with the same faults and rules, on the real
// NATS server and its client, which live in the bubble and so in virtual time.
func TestNATS(t *testing.T) {
	count, first := *natsSeeds, *firstSeed
	if testing.Short() {
		count = 5
	}
	if *oneSeed >= 0 {
		count, first = 1, uint64(*oneSeed)
	}
	ats.Register() // the server's ticker, which is for all servers of a process: outside
	defer ats.Unregister()
	t.Run("all", func(t *testing.T) {
		for seed := first; seed < first+uint64(count); seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				defer watchdog("TestNATS", seed)()
				synctest.Test(t, func(t *testing.T) {
					res := runOnNATS(t, dir, Draw(seed))
					if len(res.Violations) > 0 {
						t.Errorf("replay: go test ./internal/simtest -run TestNATS -seed %d\n%v", seed, res)
					} else if *oneSeed >= 0 {
						t.Log(res)
					}
				})
			})
		}
	})
}

// runOnNATS runs one simulation on a server of its own, without a socket and with
// its bucket in memory.
func runOnNATS(t *testing.T, dir string, p Params) *Result {
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "elections", Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	return Run(p, natskv.NewDecider(js, "elections", "simulated", nil))
}
