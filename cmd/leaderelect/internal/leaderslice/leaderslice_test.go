//go:build !no_kubernetes

package leaderslice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/leaderslice"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// slice is imagined.
type slice struct {
	mu     sync.Mutex
	leads  []string
	number leaderelection.ElectionNumber
	asked  int
	fault  error
}

func (s *slice) Lead(ctx context.Context, number leaderelection.ElectionNumber, hostPorts []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.fault != nil || ctx.Err() != nil {
		return errors.Join(s.fault, ctx.Err())
	}
	s.leads, s.number = hostPorts, number
	return nil
}

// set sets whether it leads, and what all requests fail with.
func (s *slice) set(fault error, leads ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads, s.fault, s.asked = leads, fault, 0
}

func (s *slice) is(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.leads, want) {
		t.Errorf("it leads to %q, want %q", s.leads, want)
	}
}

const here = "10.0.0.1:8080"

// The slice leads to the leader, whatever has become of it meanwhile, until the leader leaves.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slice{}
		s.set(nil, "of one that crashed")
		var log strings.Builder
		begun, left := 0, "nothing"
		cfg := leaderelection.Config{Decider: memory.New(nil), LeaderID: "a", HostPort: []string{here},
			OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { begun++; <-ctx.Done() },
			OnOusting: func(context.Context) { left = strings.Join(s.leads, " ") }}
		leaderslice.Follow(&cfg, s, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.is(t, here)
		if n := c.View().ElectionNumber(); s.number != n || n == 0 {
			t.Errorf("written with token %d, in %d", s.number, n)
		}
		s.set(nil, "mistaken")
		time.Sleep(10 * time.Second)
		s.is(t, here)
		s.set(errors.New("no API server"))
		time.Sleep(time.Hour)
		if synctest.Wait(); s.asked > 365 { // every 10 s, and some in the beginning
			t.Errorf("%d requests in an hour", s.asked)
		}
		if n := strings.Count(log.String(), "no API server"); n != 1 {
			t.Errorf("one fault was logged %d times", n)
		}
		s.set(nil)
		time.Sleep(10 * time.Second)
		s.is(t, here)
		stop()
		_ = c.Wait()
		s.is(t)
		if begun != 1 || left != "" {
			t.Errorf("the callbacks beside it: elected %d times; ousted when it led to %q", begun, left)
		}
	})
}

// What has failed in the beginning is tried again within a second.
func TestFollowSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slice{}
		s.set(errors.New("no API server"))
		cfg := leaderelection.Config{Decider: memory.New(nil), LeaderID: "a", HostPort: []string{here}}
		leaderslice.Follow(&cfg, s, slog.New(slog.NewTextHandler(io.Discard, nil)))
		ctx, stop := context.WithCancel(t.Context())
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.set(nil)
		time.Sleep(time.Second)
		s.is(t, here)
		stop()
		_ = c.Wait()
	})
}

// A slice that cannot be written is no reason to keep the lease.
func TestFollowLeavesInAnyCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slice{}
		d := memory.New(nil)
		cfg := leaderelection.Config{Decider: d, LeaderID: "a", HostPort: []string{here}}
		var log strings.Builder
		leaderslice.Follow(&cfg, s, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		c, err := cfg.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.is(t, here)
		s.set(errors.New("no API server"), here)
		stop()
		_ = c.Wait()
		if e, err := d.ReadCurrent(t.Context()); err != nil || e.LeaderID != "" {
			t.Errorf("%+v, %v", e, err)
		}
		if !strings.Contains(log.String(), "no API server") {
			t.Errorf("it is logged that\n%s", log.String())
		}
	})
}

// api answers about one EndpointSlice, as an API server does; make packages asks one itself.
type api struct {
	t       *testing.T
	is      string // JSON
	patches []string
	code    int
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-leader" {
		a.t.Errorf("%s %s", r.Method, r.URL)
	}
	switch {
	case a.code != 0:
		w.WriteHeader(a.code)
		fmt.Fprint(w, `{"kind":"Status","message":"that is so"}`)
	case r.Method == http.MethodPatch:
		var patch any
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
			a.t.Error(err, r.Header)
		}
		text, _ := json.Marshal(patch)
		a.patches = append(a.patches, string(text))
		fmt.Fprint(w, "{}")
	default:
		fmt.Fprint(w, a.is)
	}
}

// open returns the slice, for a candidate with these addresses.
func open(t *testing.T, a *api, hostPorts ...string) (leaderslice.Slice, error) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","clusters":[{"name":"test","cluster":{"server":%q}}],
"contexts":[{"name":"test","context":{"cluster":"test","namespace":"shop"}}]}`, server.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", config)
	return leaderslice.Open("web-leader", hostPorts)
}

// A leader replaces what earlier leaderships have left, and nothing of a later one's; each write is
// on the version that was read.
func TestLead(t *testing.T) {
	ours := []string{"10.0.0.1:8080", "[fd00::1]:8080"}
	of := func(kind, number, endpoints string) string {
		return fmt.Sprintf(`{"metadata":{"resourceVersion":"17","annotations":{"leaderelection/token":%q}},"addressType":%q,"endpoints":[%s]}`, number, kind, endpoints)
	}
	const v4, v6, other = `{"addresses":["10.0.0.1"],"conditions":{"ready":true}}`, `{"addresses":["fd00::1"],"conditions":{"ready":true}}`, `{"addresses":["10.0.0.9"],"conditions":{"ready":true}}`
	patch := func(endpoints string) string {
		return `{"endpoints":[` + endpoints + `],"metadata":{"annotations":{"leaderelection/token":"7"},"resourceVersion":"17"}}`
	}
	for name, c := range map[string]struct {
		is    string
		lead  []string
		patch string // empty: there is none
		err   string
	}{
		"new":                       {`{"metadata":{"resourceVersion":"17"},"addressType":"IPv4","endpoints":null}`, ours, patch(v4), ""},
		"of the leader before":      {of("IPv4", "6", other), ours, patch(v4), ""},
		"of the sixth version":      {of("IPv6", "6", other), ours, patch(v6), ""},
		"as it is":                  {of("IPv4", "7", v4), ours, "", ""},
		"emptied":                   {of("IPv4", "7", ""), ours, patch(v4), ""},
		"of a later leader":         {of("IPv4", "8", other), ours, "", "written with token 8"},
		"mapped":                    {of("IPv6", "6", other), []string{"[::ffff:10.0.0.1]:8080"}, "", "type IPv6"},
		"of another type":           {of("FQDN", "6", other), ours, "", `type "FQDN"`},
		"of another, leaving":       {of("FQDN", "7", other), nil, "", `type "FQDN"`},
		"of no type":                {`{"metadata":{"resourceVersion":"17"}}`, ours, "", `type ""`},
		"of no version":             {`{"metadata":{"annotations":{"leaderelection/token":"6"}},"addressType":"IPv4"}`, ours, "", "resourceVersion"},
		"of version 0":              {`{"metadata":{"resourceVersion":"0"},"addressType":"IPv4"}`, ours, "", "resourceVersion"},
		"of no version, leaving":    {`{"metadata":{"annotations":{"leaderelection/token":"7"}},"addressType":"IPv4"}`, nil, "", "resourceVersion"},
		"leaving":                   {of("IPv4", "7", v4), nil, patch(""), ""},
		"leaving, left":             {of("IPv4", "7", ""), nil, "", ""},
		"leaving a later leader":    {of("IPv4", "8", other), nil, "", ""},
		"leaving what was not ours": {of("IPv4", "6", other), nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := &api{t: t, is: c.is}
			s, err := open(t, a, ours...)
			if err != nil {
				t.Fatal(err)
			}
			err = s.Lead(t.Context(), leaderelection.ElectionNumber(7), c.lead)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v", err)
			}
			if got := strings.Join(a.patches, "\n"); got != c.patch {
				t.Errorf("it was patched by\n%s\nwant\n%s", got, c.patch)
			}
		})
	}
	a := &api{t: t, code: http.StatusForbidden}
	s, err := open(t, a, ours...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Lead(t.Context(), 7, ours); err == nil || !strings.Contains(err.Error(), "403 Forbidden: that is so") {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for want, hostPorts := range map[string][]string{"there is none": nil, `"web:8080" is none`: {"10.0.0.1:8080", "web:8080"}} {
		if _, err := open(t, &api{t: t}, hostPorts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", hostPorts, err)
		}
	}
}
