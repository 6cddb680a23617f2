package s3_test

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

// A server that takes no notice of If-Match, or of If-None-Match, is found out before
// anybody leads, and without being asked for it (verify=true).
func TestDeafNobodyLeads(t *testing.T) {
	overhttp.DeafNobodyLeads(t, overHTTP(t), map[string]func(*http.Request){
		"IfMatch":     func(r *http.Request) { r.Header.Del("If-Match") },
		"IfNoneMatch": func(r *http.Request) { r.Header.Del("If-None-Match") },
		"Both":        func(r *http.Request) { r.Header.Del("If-Match"); r.Header.Del("If-None-Match") },
	})
}
