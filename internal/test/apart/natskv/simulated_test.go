package natskv_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/sim"
)

var (
	seedCount = flag.Int("seeds", 50, "how many seeds TestSimulated simulates")
	oneSeed   = flag.Int64("seed", -1, "simulate this seed only, and print its trace")
)

// TestSimulated runs the simulations of internal/test/sim, with the same faults and rules,
// on the real NATS server and its client, which live in the bubble and so in virtual time.
func TestSimulated(t *testing.T) {
	count, first := *seedCount, uint64(1)
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
				replay := fmt.Sprintf("replay: go test ./deciders/natskv -run TestSimulated -seed %d", seed)
				watchdog := time.AfterFunc(time.Minute, func() { panic(replay + "\nhot loop: time has stood still for a minute") })
				defer watchdog.Stop()
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					res := simulate(t, dir, sim.Draw(seed))
					if len(res.Violations) > 0 {
						t.Errorf("%s\n%v", replay, res)
					} else if *oneSeed >= 0 {
						t.Log(res)
					}
				})
			})
		}
	})
}

// simulate runs one simulation on a server of its own, without a socket and with its
// bucket in memory.
func simulate(t *testing.T, dir string, p sim.Params) *sim.Result {
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
	return sim.Run(p, sim.On(natskv.NewDecider(js, "elections", "simulated", nil)))
}
