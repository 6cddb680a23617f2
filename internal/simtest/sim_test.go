package simtest

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
)

var (
	seedCount = flag.Int("seeds", 1000, "how many seeds to simulate")
	firstSeed = flag.Uint64("first", 1, "the first of them")
	oneSeed   = flag.Int64("seed", -1, "simulate this seed only")
)

// TestSeeds simulates elections, each of ten virtual minutes or more.
func TestSeeds(t *testing.T) {
	first, count := *firstSeed, *seedCount
	if *oneSeed >= 0 {
		first, count = uint64(*oneSeed), 1
	}
	for seed := first; seed < first+uint64(count); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				res := Run(Draw(seed), nil)
				if len(res.Violations) > 0 {
					t.Errorf("replay: go test ./internal/simtest -run TestSeeds -seed %d\n%v", seed, res)
				} else if *oneSeed >= 0 {
					t.Log(res.Params, res.Counts)
				}
			})
		})
	}
}
