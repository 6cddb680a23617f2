package dynamo_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/httpfault"
	"github.com/c8e606e4/leaderelection/internal/simtest/overhttp"
)

func TestDisbelieves(t *testing.T) {
	s := overHTTP(t)
	overhttp.Disbelieves(t, s, &httpfault.Transport{Handler: s.Serve()})
}

func TestNobodyLeads(t *testing.T) { overhttp.NobodyLeads(t, overHTTP(t)) }
