package kubernetes_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection"

	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func TestConformance(t *testing.T) {
	decidertest.Run(t, elections(stores.Kube(t)), nil)
}

// What stands in for the API server in virtual time keeps the contract as well.
func TestImitation(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		s := newImitation()
		return func() leaderelection.RaceDecider { return decider(imitationClient(t, s), "one") }
	}, nil)
}
