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
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func TestMain(m *testing.M) {
	candidateMain()
	goleak.VerifyTestMain(m)
}

// Every contestant elects, fails over and hands over in the harness, so that the
// figures are of something that works; the views of this library do not overlap
// where its conditions hold, and the harness sees it where they do not.
func TestContestants(t *testing.T) {
	p := plan{elections: 3, term: 5 * time.Second, window: 3 * time.Second}
	results := measure(t.Context(), t, p, servers(t, p.term))
	var believed time.Duration // by the signals of the others, after a pause that outlasted the lease
	for i, c := range contestants {
		if c.idleOnly || c.deathsOnly {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			r := results[i]
			if r == nil {
				stores.Missing(t, missing(c.store)+" is not on this machine")
			}
			if r.err != nil {
				t.Fatal(r.err)
			}
			if len(r.frozen.told) != p.elections || len(r.clung) != p.elections {
				t.Errorf("%d elections were measured with the leader cut off, want %d", len(r.frozen.told), p.elections)
			}
			if !c.freezeOnly {
				works(t, p, r)
			}
			if c.library != module {
				believed = max(believed, quantile(r.paused.told, 1))
				return
			}
			overlapped := quantile(append(r.frozen.asked, r.paused.asked...), 1)
			if breaks := c.name == slowName; (overlapped > 0) != breaks {
				t.Errorf("two views were true at once for up to %v; is that to be seen here: %v", overlapped, breaks)
			}
		})
	}
	// If none ever does that, another proof is needed that the harness sees it.
	if believed == 0 {
		t.Error("no process that was stopped past its lease was seen to go on believing")
	}
}

// works checks what must be so whatever the library, on a busy machine as well: there, leaders lose
// their leases, and all takes longer.
func works(t *testing.T, p plan, r *result) {
	t.Logf("after a crash another led after %v, after a stop after %v", r.crash, r.handed)
	if len(r.crash) != p.elections || len(r.handed) != p.elections {
		t.Errorf("%d and %d samples, want %d", len(r.crash), len(r.handed), p.elections)
	}
	if r.leader <= 0 || r.standby < 0 {
		t.Errorf("a leader made %v requests in a minute, a standby %v", r.leader, r.standby)
	}
	if len(r.paused.told) != p.elections {
		t.Errorf("%d elections were measured with the leader paused, want %d", len(r.paused.told), p.elections)
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

func TestOverlap(t *testing.T) {
	when := func(s int64) time.Time { return time.Unix(s, 0) }
	end := when(100)
	on := func(e int, what string, at int64) event {
		return event{Election: e, What: what, On: true, At: at * int64(time.Second)}
	}
	off := func(e int, what string, at int64) event {
		return event{Election: e, What: what, At: at * int64(time.Second)}
	}
	a := []event{on(0, told, 10), on(0, asked, 10), on(1, told, 0), off(0, asked, 20), off(0, told, 30), on(0, told, 50), off(0, told, 55)}
	b := []event{on(0, told, 25), on(0, asked, 25)}
	if got := overlap(spans(a, 0, told, end), spans(b, 0, told, end)); got != 10*time.Second {
		t.Errorf("told overlaps for %v, want 5 s before 30 and 5 s after 50", got)
	}
	if got := overlap(spans(a, 0, asked, end), spans(b, 0, asked, end)); got != 0 {
		t.Errorf("asked overlaps for %v, want nothing", got)
	}
	if believesNot(a) {
		t.Error("election 1 is still believed in")
	}
	if !believesNot(append(a, off(1, told, 60))) {
		t.Error("nothing is believed in any more")
	}
}
