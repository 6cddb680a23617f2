package s3_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/httpfault"
)

func TestDisbelieves(t *testing.T) {
	s := overHTTP(t)
	httpfault.Disbelieves(t, s, &httpfault.Transport{Handler: s.Serve()})
}

func TestNobodyLeads(t *testing.T) { httpfault.NobodyLeads(t, overHTTP(t)) }
