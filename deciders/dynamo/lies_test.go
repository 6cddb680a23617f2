package dynamo_test

import (
	"net/http"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func TestDisbelieves(t *testing.T) {
	s := overHTTP(t)
	overhttp.Disbelieves(t, s, &httpfault.Transport{Handler: s.Serve()})
}

func TestNobodyLeads(t *testing.T) { overhttp.NobodyLeads(t, overHTTP(t)) }

// An imitation that takes no notice of one of the conditions has nobody lead.
func TestDeafNobodyLeads(t *testing.T) {
	overhttp.DeafNobodyLeads(t, overHTTP(t), map[string]func(*http.Request){
		"Version":   func(r *http.Request) { r.Header.Set(deafTo, "#v") },
		"NotExists": func(r *http.Request) { r.Header.Set(deafTo, "attribute_not_exists") },
	})
}
