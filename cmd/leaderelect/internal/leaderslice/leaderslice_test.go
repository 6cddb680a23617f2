//go:build !no_kubernetes

package leaderslice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
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

// follow has a slice follow a candidate that leads, until stop, which waits for its end.
func follow(t *testing.T, s *slice, cfg leaderelection.Config) (c *leaderelection.Campaign, log *strings.Builder, stop func()) {
	t.Helper()
	log = &strings.Builder{}
	cfg.LeaderID, cfg.HostPort = "a", []string{here}
	Follow(&cfg, s, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	c, err := cfg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c, log, func() {
		cancel()
		_ = c.Wait()
	}
}

// The slice leads to the leader, whatever has become of it meanwhile, until the leader leaves.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slice{}
		s.set(nil, "of one that crashed")
		begun, left := 0, "nothing"
		c, log, stop := follow(t, s, leaderelection.Config{Decider: memory.New(nil),
			OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { begun++; <-ctx.Done() },
			OnOusting: func(context.Context) { left = strings.Join(s.leads, " ") }})
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
		_, _, stop := follow(t, s, leaderelection.Config{Decider: memory.New(nil)})
		s.set(nil)
		time.Sleep(time.Second)
		s.is(t, here)
		stop()
	})
}

// A slice that cannot be written is no reason to keep the lease.
func TestFollowLeavesInAnyCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := &slice{}, memory.New(nil)
		_, log, stop := follow(t, s, leaderelection.Config{Decider: d})
		s.is(t, here)
		s.set(errors.New("no API server"), here)
		stop()
		if e, err := d.ReadCurrent(t.Context()); err != nil || e.LeaderID != "" {
			t.Errorf("%+v, %v", e, err)
		}
		if !strings.Contains(log.String(), "no API server") {
			t.Errorf("it is logged that\n%s", log.String())
		}
	})
}

// api is an API server that gives one answer to each read. (make packages asks one itself.)
type api struct {
	code    int
	is      string
	patches []string
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	switch {
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json":
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		a.patches = append(a.patches, string(text))
	case r.Method == http.MethodGet:
		w.WriteHeader(a.code)
		fmt.Fprint(w, a.is)
	default:
		w.WriteHeader(http.StatusUnsupportedMediaType)
	}
	return w.Result(), nil
}

// lead asks the server to have the slice lead there, as the leader with token 7.
func (a *api) lead(t *testing.T, hostPorts ...string) error {
	return (&object{&http.Client{Transport: a}, "https://kubernetes/slice"}).Lead(t.Context(), 7, hostPorts)
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
		return `{"endpoints":[` + endpoints + `],"metadata":{"resourceVersion":"17","annotations":{"leaderelection/token":"7"}}}`
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
			a := &api{code: http.StatusOK, is: c.is}
			err := a.lead(t, c.lead...)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v", err)
			}
			if got := strings.Join(a.patches, "\n"); got != c.patch {
				t.Errorf("it was patched by\n%s\nwant\n%s", got, c.patch)
			}
		})
	}
	refused := &api{code: http.StatusForbidden, is: `{"kind":"Status","message":"that is so"}`}
	if err := refused.lead(t, ours...); err == nil || !strings.Contains(err.Error(), "403 Forbidden: that is so") {
		t.Error(err)
	}
}

// The slice is looked for in the namespace of the kubeconfig, for candidates with addresses.
func TestOpen(t *testing.T) {
	config := filepath.Join(t.TempDir(), "kubeconfig")
	t.Setenv("KUBECONFIG", config)
	if err := os.WriteFile(config, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"test","clusters":[{"name":"test","cluster":{"server":"https://api:6443/base"}}],
"contexts":[{"name":"test","context":{"cluster":"test","namespace":"shop"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open("web-leader", []string{here})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.(*object).address, "https://api:6443/base/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-leader"; got != want {
		t.Errorf("it is at %s, want %s", got, want)
	}
	for want, hostPorts := range map[string][]string{"there is none": nil, `"web:8080" is none`: {"10.0.0.1:8080", "web:8080"}} {
		if _, err := Open("web-leader", hostPorts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", hostPorts, err)
		}
	}
}

// Whatever the API server answers, a leader writes at most once, on the version that it has read, under its own
// token, and only one of its own addresses, of the slice's family. It writes nothing over what a later
// leadership has written, and when it leaves nothing but what it has written itself. If it neither writes nor
// fails, there is nothing to write.
func FuzzAnswers(f *testing.F) {
	const v4, v6 = "10.0.0.1", "fd00::1"
	for _, text := range []string{
		`{"metadata":{"resourceVersion":"17"},"addressType":"IPv4","endpoints":null}`,
		`{"metadata":{"resourceVersion":"17","annotations":{"leaderelection/token":"6"}},"addressType":"IPv6","endpoints":[{"addresses":["10.0.0.9"]}]}`,
		`{"metadata":{"resourceVersion":"17","annotations":{"leaderelection/token":"7"}},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}}]}`,
		`{"metadata":{"resourceVersion":"17","annotations":{"leaderelection/token":"8"}},"addressType":"IPv4","endpoints":[]}`,
		`{"metadata":{"annotations":{"leaderelection/token":"99999999999999999999"}},"addressType":"FQDN","endpoints":[{}]}`,
		`{"metadata":{"resourceVersion":"17"},"addressType":"FQDN","endpoints":[{}]}`, // an address of IPv6 is not IPv4
		`{"metadata":{"resourceVersion":"99999999999999999999"},"addressType":"IPv4"}`,
		`{"metadata":{},"addressType":"IPv4"}`, // a patch without a version is unconditional
		`{"metadata":{"annotations":{"leaderelection/token":"-1"}}}`, `{"metadata":null,"endpoints":[null]}`,
		`{"kind":"Status","message":"that is so"}`, `null`, `[]`, `"`, ``, `{"endpoints":[{"addresses":{}}]}`,
	} {
		f.Add([]byte(text), false, false)
		f.Add([]byte(text), true, false)
		f.Add([]byte(text), false, true)
	}
	f.Fuzz(func(t *testing.T, text []byte, leaves, fails bool) {
		a := &api{http.StatusOK, string(text), nil}
		if fails {
			a.code = http.StatusConflict
		}
		hostPorts := []string{v4 + ":8080", "[" + v6 + "]:8080"}
		if leaves {
			hostPorts = nil
		}
		err := a.lead(t, hostPorts...)
		var is, said struct {
			Metadata    metadata   `json:"metadata"`
			AddressType string     `json:"addressType"`
			Endpoints   []endpoint `json:"endpoints"`
		}
		if json.Unmarshal(text, &is) != nil || fails {
			if err == nil || len(a.patches) > 0 {
				t.Fatalf("%v, and it wrote %q", err, a.patches)
			}
			return
		}
		token, _ := strconv.ParseUint(is.Metadata.Annotations[numberKey], 10, 64) // too large is the largest
		if len(a.patches) == 0 {
			if err == nil && !leaves && !(token == 7 && len(is.Endpoints) == 1 && len(is.Endpoints[0].Addresses) == 1 && (is.Endpoints[0].Addresses[0] == v4 || is.Endpoints[0].Addresses[0] == v6)) {
				t.Fatalf("nothing is written, and the slice is %+v", is)
			}
			return
		}
		if err := json.Unmarshal([]byte(a.patches[0]), &said); err != nil || len(a.patches) > 1 {
			t.Fatalf("it wrote %q: %v", a.patches, err)
		}
		if version, err := strconv.ParseUint(is.Metadata.ResourceVersion, 10, 64); err != nil || version == 0 || said.Metadata.ResourceVersion != is.Metadata.ResourceVersion || said.Metadata.Annotations[numberKey] != "7" {
			t.Errorf("on version %q it wrote %s", is.Metadata.ResourceVersion, a.patches[0])
		}
		if token > 7 || leaves && token != 7 {
			t.Errorf("over what was written with token %d it wrote %s", token, a.patches[0])
		}
		if is.AddressType != "IPv4" && is.AddressType != "IPv6" {
			t.Errorf("to a slice of type %q it wrote %s", is.AddressType, a.patches[0])
		}
		var to []string
		for _, e := range said.Endpoints {
			to = append(to, e.Addresses...)
		}
		switch {
		case leaves:
			if len(to) > 0 {
				t.Errorf("it leaves, and the slice leads to %q", to)
			}
		case len(to) != 1 || to[0] != v4 && to[0] != v6 || netip.MustParseAddr(to[0]).Is4() != (is.AddressType == "IPv4"):
			t.Errorf("a slice of type %q leads to %q", is.AddressType, to)
		}
	})
}
