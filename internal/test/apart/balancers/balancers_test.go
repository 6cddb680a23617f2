// Package balancers tries what docs/loadbalancers has with the load balancers themselves.
package balancers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// candidateEnv makes this test binary a candidate: its value is "ID ADDRESS FILE".
const candidateEnv = "LEADERELECTION_BALANCED"

func TestMain(m *testing.M) {
	if role := os.Getenv(candidateEnv); role != "" {
		f := strings.Fields(role)
		fmt.Fprintln(os.Stderr, serve(f[0], f[1], f[2]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const (
	term = 2 * time.Second
	skew = 100 * time.Millisecond
)

// serve is a candidate's process: any HTTP service of hot standbys.
func serve(id, address, path string) error {
	campaign, err := leaderelection.Config{
		Decider: file.NewDecider(path, nil), LeaderID: id, HostPort: []string{address}, TermLength: term, MaxClockSkew: skew,
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { <-ctx.Done() },
	}.Start(context.Background())
	if err != nil {
		return err
	}
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, id)
	})
	mux := http.NewServeMux()
	mux.Handle("/election/", http.StripPrefix("/election", lehttp.Probes(campaign, nil)))
	mux.Handle("/report", app)
	mux.Handle("/", lehttp.RequireLeader(campaign, nil)(app))
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return server.ListenAndServe()
}

// fleet is three candidates of one election, in processes of their own.
type fleet struct {
	election *file.Decider
	all      map[string]*stores.Process
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "election.json")
	f := &fleet{election: file.NewDecider(path, nil), all: map[string]*stores.Process{}}
	for _, id := range []string{"a", "b", "c"} {
		f.all[id] = stores.Start(t, stores.Program{Name: "candidate " + id, Command: func(port int) []string {
			return []string{"/usr/bin/env", fmt.Sprintf("%s=%s 127.0.0.1:%d %s", candidateEnv, id, port, path), self}
		}})
	}
	return f
}

// leader is who leads, by the record.
func (f *fleet) leader(t *testing.T) string {
	t.Helper()
	for {
		e, err := f.election.ReadCurrent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !e.Vacant() && time.Now().Before(e.TermExpiry) {
			return e.LeaderID
		}
		<-time.After(10 * time.Millisecond)
	}
}

// other is one who does not lead.
func (f *fleet) other(leader string) string {
	for id := range f.all {
		if id != leader {
			return id
		}
	}
	return ""
}

// patience is how long a test waits for what should happen within seconds.
const patience = 30 * time.Second

// until asks url again and again until one of want has answered twenty times running, and
// returns when that began. Before, there may be answers of may, and errors, but nobody
// else's answers.
func until(t *testing.T, url string, want, may string) string {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	began := time.Now()
	since, row, failed := began, 0, 0
	for i := 0; row < 20 && time.Since(began) < patience; i++ {
		id, err := ask(t.Context(), client, []string{http.MethodGet, http.MethodPost}[i%2], url)
		switch {
		case err == nil && strings.Contains(want, id):
			if row++; row == 1 {
				since = time.Now()
			}
			continue
		case err == nil && !strings.Contains(may, id):
			t.Fatalf("%s is answered by %s, who does not lead: want %s", url, id, want)
		case err != nil:
			failed++
		}
		row = 0
		<-time.After(10 * time.Millisecond)
	}
	if row == 0 {
		t.Fatalf("%s is not answered by %s after %v", url, want, patience)
	}
	return fmt.Sprintf("within %v, and %d requests failed", since.Sub(began), failed)
}

var errUnavailable = errors.New("unavailable")

// ask returns who answers.
func ask(ctx context.Context, c *http.Client, method, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errUnavailable
	}
	return string(text), err
}

// config is a file of docs/loadbalancers with each of its addresses replaced.
func config(t *testing.T, name string, replace map[string]string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(stores.Root(t), "docs", "loadbalancers", name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for old, now := range replace {
		if !strings.Contains(text, old) {
			t.Fatalf("%s does not have %s", name, old)
		}
		text = strings.ReplaceAll(text, old, now)
	}
	return text
}

// Through HAProxy with the configuration of the documentation, traffic follows the leader,
// through a hand-over, a crash, and the return of who crashed; and reports go to standbys.
func TestHAProxy(t *testing.T) {
	f := newFleet(t)
	reports := stores.FreePort(t)
	proxy := stores.HAProxy(t, func(port int) string {
		return config(t, "haproxy.cfg", map[string]string{
			"bind :8080": fmt.Sprintf("bind 127.0.0.1:%d", port), "bind :8081": fmt.Sprintf("bind 127.0.0.1:%d", reports),
			"10.0.0.1:8080": f.all["a"].Addr, "10.0.0.2:8080": f.all["b"].Addr, "10.0.0.3:8080": f.all["c"].Addr,
		})
	})
	app, report := "http://"+proxy.Addr+"/", fmt.Sprintf("http://127.0.0.1:%d/report", reports)
	first := f.leader(t)
	t.Logf("the leader %s is found %s", first, until(t, app, first, first))
	second := f.other(first)
	if err := leaderelection.Transfer(t.Context(), f.election, second); err != nil {
		t.Fatal(err)
	}
	t.Logf("after a hand-over %s is found %s", second, until(t, app, second, first+second))
	standbys := strings.ReplaceAll("abc", second, "")
	t.Logf("standbys get reports %s", until(t, report, standbys, "abc"))
	f.all[second].Stop()
	t.Logf("after a crash somebody is found %s, where a term is %v", until(t, app, standbys, "abc"), term)
	third := f.leader(t)
	t.Logf("it is %s, %s", third, until(t, app, third, third))
}
