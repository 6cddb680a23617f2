package fencegcs_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// metagenerations serves the emulator at target, whose objects have the
// metageneration 1 for ever, with what the real service does: a change of the
// metadata raises it, and ifMetagenerationMatch holds, as does ifGenerationMatch of
// such a change.
func metagenerations(t *testing.T, target string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	tr := new(http.Transport)
	p := httputil.NewSingleHostReverseProxy(u)
	p.Transport = tr
	s := httptest.NewServer(&counter{next: p, versions: make(map[string]version)})
	t.Cleanup(func() { s.Close(); tr.CloseIdleConnections() })
	return s.URL
}

type version struct {
	generation string
	meta       int
}

type counter struct {
	next     http.Handler
	mu       sync.Mutex
	versions map[string]version // of objects, by name
}

var nameInJSON = regexp.MustCompile(`"name":\s*"([^"]*)"`)

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	name := ""
	if _, after, ok := strings.Cut(r.URL.Path, "/o/"); ok {
		name = after
	} else if m := nameInJSON.FindSubmatch(body); m != nil {
		name = string(m[1])
	}
	v := c.versions[name]
	if c.refuses(r, v) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, `{"error":{"code":412,"message":"conditionNotMet"}}`)
		return
	}
	rec := httptest.NewRecorder()
	c.next.ServeHTTP(rec, r)
	answer := rec.Body.Bytes()
	if rec.Code == http.StatusOK && r.Method != http.MethodGet {
		var o struct{ Generation string }
		_ = json.Unmarshal(answer, &o)
		if v.meta++; o.Generation != v.generation {
			v = version{o.Generation, 1}
		}
		c.versions[name] = v
	}
	answer = bytes.Replace(answer, []byte(`"metageneration":"1"`), []byte(`"metageneration":"`+strconv.Itoa(max(v.meta, 1))+`"`), 1)
	for k, vs := range rec.Header() {
		w.Header()[k] = vs
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(rec.Code)
	_, _ = w.Write(answer)
}

func (c *counter) refuses(r *http.Request, v version) bool {
	if v.meta == 0 {
		return false
	}
	meta := r.URL.Query().Get("ifMetagenerationMatch")
	if meta != "" && meta != strconv.Itoa(v.meta) {
		return true
	}
	return r.Method == http.MethodPatch && r.URL.Query().Get("ifGenerationMatch") != v.generation
}
