package main

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func TestMain(m *testing.M) {
	candidateMain()
	goleak.VerifyTestMain(m)
}

// Every contestant elects, fails over and hands over in the harness, so that the figures are of
// something that works. How soon is measured and not tested: on a busy machine leaders lose their
// leases, and all takes longer.
func TestContestants(t *testing.T) {
	p := plan{elections: 3, term: 5 * time.Second, window: 3 * time.Second}
	results := measure(t, p, servers(t))
	for i, c := range contestants {
		t.Run(c.String(), func(t *testing.T) {
			r := results[i]
			if r == nil {
				stores.Missing(t, "redis-server is not on this machine")
			}
			if r.err != nil {
				t.Fatal(r.err)
			}
			t.Logf("after a crash another led after %v, after a stop after %v", r.crash, r.handed)
			if len(r.crash) != p.elections || len(r.handed) != p.elections {
				t.Errorf("%d and %d samples, want %d", len(r.crash), len(r.handed), p.elections)
			}
			if r.leader <= 0 || r.standby < 0 {
				t.Errorf("a leader made %v requests in a minute, a standby %v", r.leader, r.standby)
			}
		})
	}
}

// The decider on Leases keeps the contract, so the API server's resourceVersion
// does decide.
func TestLeases(t *testing.T) {
	addr := kubernetesServer(t)
	var n atomic.Int64
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		key := "lease-" + time.Duration(n.Add(1)).String()
		return func() leaderelection.RaceDecider {
			d, _, err := leaseDecider(seat{Addr: addr, Key: key, Ops: new(atomic.Int64)})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}, &decidertest.Options{Rounds: 3, Writers: 8})
}

// An update that names an old resourceVersion is refused as Kubernetes does.
func TestAPIServerRefusesStaleUpdates(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // of httptest
	defer client.CloseIdleConnections()
	leases := "https://" + kubernetesServer(t) + "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
	send := func(method, url, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct {
			Reason   string
			Metadata struct{ ResourceVersion string }
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, answer.Reason + answer.Metadata.ResourceVersion
	}
	const lease = `{"metadata": {"name": "x", "resourceVersion": "1"}}`
	for _, step := range []struct {
		method, url, body string
		code              int
		answer            string
	}{
		{"GET", leases + "/x", "", 404, "NotFound"},
		{"PUT", leases + "/x", lease, 404, "NotFound"},
		{"POST", leases, lease, 201, "1"},
		{"POST", leases, lease, 409, "AlreadyExists"},
		{"PUT", leases + "/x", lease, 200, "2"},
		{"PUT", leases + "/x", lease, 409, "Conflict"},
		{"GET", leases + "/x", "", 200, "2"},
		{"PUT", leases + "/x", "nonsense", 400, "BadRequest"},
	} {
		if code, answer := send(step.method, step.url, step.body); code != step.code || answer != step.answer {
			t.Errorf("%s %s %s: %d %s, want %d %s", step.method, step.url, step.body, code, answer, step.code, step.answer)
		}
	}
}
