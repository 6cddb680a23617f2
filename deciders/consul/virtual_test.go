//go:build go1.25

package consul_test

import (
	"net/http"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func says(status int, text string) httpfault.Fault {
	return httpfault.Fault{Status: status, Body: text}
}

// overHTTP is the store, as the imitation, for elections over HTTP.
var overHTTP = overhttp.Store{
	Serve: func() http.Handler { return newImitation() },
	Decider: func(c *http.Client) leaderelection.RaceDecider {
		return polled{consul.NewDecider(c, "http://imitation.invalid", "elections/one", nil)}
	},
	Place:  `Consul key "elections/one"`,
	Writes: func(r *http.Request) bool { return r.Method == http.MethodPut },
	Busy: map[string]httpfault.Fault{
		"NoLeader":    says(http.StatusInternalServerError, "No cluster leader"),
		"LostLeader":  says(http.StatusInternalServerError, "rpc error making call: raft apply failed: leadership lost while committing log"),
		"NotReady":    says(http.StatusInternalServerError, "Not ready to serve consistent reads"),
		"BrokenRPC":   says(http.StatusInternalServerError, "rpc error making call: EOF"),
		"RateLimit":   says(http.StatusTooManyRequests, "Your IP is issuing too many concurrent connections, please rate limit your calls\n"),
		"RetryLater":  says(http.StatusServiceUnavailable, "rate limit exceeded for operation that can only be performed by the leader, try again later"),
		"ElsewhereDC": says(http.StatusInternalServerError, "No path to datacenter"),
	},
}

// Whole elections, with whatever can go wrong with HTTP, by scenario and by seed; and with
// what else may answer in place of Consul.
func TestElections(t *testing.T) { overhttp.Elections(t, overHTTP) }

func TestSeeds(t *testing.T) { overhttp.Seeds(t, overHTTP, 50) }

func TestDisbelieves(t *testing.T) {
	overhttp.Disbelieves(t, overHTTP, newImitation().transport())
}

// Also with what is answered in place of the feed's queries.
func TestNobodyLeads(t *testing.T) {
	s := overHTTP
	s.Decider = func(c *http.Client) leaderelection.RaceDecider {
		return consul.NewDecider(c, "http://imitation.invalid", "elections/one", nil)
	}
	overhttp.NobodyLeads(t, s)
}
