package natskv_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

// A real server, without a socket and with its bucket in memory, runs in virtual
// time along with its candidates: what takes minutes is over at once, and its
// times are exact. This is how to test a program that elects its leader by NATS.
func TestVirtualTime(t *testing.T) {
	ats.Register() // the server's access-time ticker, which is for all servers of a process: outside
	defer ats.Unregister()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		defer s.WaitForShutdown()
		defer s.Shutdown()
		connect := func() jetstream.JetStream {
			nc, err := nats.Connect("", nats.InProcessServer(s), nats.MaxReconnects(-1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			return js
		}
		kv := makeBucket(t, connect(), func(c *jetstream.KeyValueConfig) { c.Storage = jetstream.MemoryStorage })
		clients := map[string]*nats.Conn{}
		var candidates []leaderelection.RaceDecider
		for _, id := range []string{"candidate-1", "candidate-2", "candidate-3"} {
			js := connect()
			clients[id] = js.Conn()
			candidates = append(candidates, natskv.NewDecider(js, bucket, key, nil))
		}
		tr := newTrial(t, candidates...)
		number, leader := tr.after(0, term)

		time.Sleep(time.Minute) // nothing happens but extensions, two a term
		if !tr.view().ValueInFuture() || tr.view().ElectionNumber() != number {
			t.Errorf("leadership %d did not last a minute", number)
		}
		status, err := kv.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d writes in a minute with a term of %v", status.(*jetstream.KeyValueBucketStatus).StreamInfo().State.LastSeq, term)

		clients[leader].Close() // it is cut off for good
		expiry := tr.view().Get().Add(skew)
		next, other := tr.after(number, 2*term)
		if late := time.Since(expiry.Add(skew)); late < 0 || late > term/20 {
			t.Errorf("%s leads %v after the term's end and the allowance for skew, want within a twentieth of the term", other, late)
		}

		if err := leaderelection.StepDown(t.Context(), natskv.NewDecider(connect(), bucket, key, nil), false); err != nil {
			t.Fatal(err)
		}
		if _, third := tr.after(next, term); third == other || third == leader {
			t.Errorf("%s leads after %s was cut off and %s stepped down", third, leader, other)
		}
	})
}
