package natskv_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(natskv.Open)
	goleak.VerifyTestMain(m)
}

const (
	bucket = "elections"
	key    = "billing"
)

// makeBucket makes the bucket that most tests use.
func makeBucket(t testing.TB, js jetstream.JetStream, change ...func(*jetstream.KeyValueConfig)) jetstream.KeyValue {
	t.Helper()
	c := jetstream.KeyValueConfig{Bucket: bucket}
	for _, f := range change {
		f(&c)
	}
	kv, err := js.CreateKeyValue(t.Context(), c)
	if err != nil {
		t.Fatalf("making bucket: %v", err)
	}
	return kv
}

// loses fails the test where a write with token is not a lost race.
func loses(t testing.TB, d leaderelection.RaceDecider, token leaderelection.LeaderToken) {
	t.Helper()
	if _, err := d.WriteEntry(t.Context(), feedtest.State(99, token)); !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("WriteEntry = %v, want ErrLostRace", err)
	}
}
