package rethinkdb_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/decidertest"
)

// On the imitation, which does next to nothing: what is measured is the driver and the
// decider, not RethinkDB.
func BenchmarkDeciderOnImitation(b *testing.B) {
	decidertest.Bench(b, elections(imitate(b).addr))
}
