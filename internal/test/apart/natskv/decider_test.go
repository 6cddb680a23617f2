package natskv_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
)

// elections makes one election after another in one bucket.
func elections(js func(t testing.TB) jetstream.JetStream, bucket string, o *natskv.Options) func(testing.TB) func() leaderelection.RaceDecider {
	var n atomic.Int64
	return func(t testing.TB) func() leaderelection.RaceDecider {
		key := fmt.Sprintf("services/web.%d", n.Add(1))
		return func() leaderelection.RaceDecider { return natskv.NewDecider(js(t), bucket, key, o) }
	}
}

func TestConformance(t *testing.T) {
	s := natstest.Start(t)
	js := func(t testing.TB) jetstream.JetStream { return s.JetStream(t) }
	decidertest.Run(t, elections(js, "elections", &natskv.Options{Create: &jetstream.KeyValueConfig{}}), nil)
}
