//go:build unix

package sidecar_test

import (
	"bufio"
	"bytes"
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
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/sidecar"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a sidecar whose records a test makes up.
type served struct {
	*httptest.Server
	hub    *sidecar.Hub
	asked  []string
	answer error
}

// none is what an observer has of a campaign.
func none() *leaderelection.Campaign { return nil }

func serve(t *testing.T, campaign *leaderelection.Campaign, change ...func(*sidecar.Config)) *served {
	s := &served{hub: sidecar.NewHub(100 * time.Millisecond)}
	ended := make(chan struct{})
	get := func() *leaderelection.Campaign { return campaign }
	id := ""
	if campaign != nil {
		id = "me"
	}
	c := sidecar.Config{
		Hub: s.hub, Campaign: get, ID: id, Skew: 100 * time.Millisecond, Metrics: sidecar.NewMetrics().Handler(),
		Ended: ended, Hosts: []string{"allowed.example"},
		StepDown: func(_ context.Context, force bool) error {
			s.asked = append(s.asked, map[bool]string{false: "*", true: "**"}[force])
			return s.answer
		},
		Transfer: func(_ context.Context, id string) error { s.asked = append(s.asked, id); return s.answer },
	}
	for _, f := range change {
		f(&c)
	}
	s.Server = httptest.NewServer(sidecar.Handler(c))
	t.Cleanup(func() {
		close(ended)
		s.hub.Close()
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func led(id string, number, extension uint64, left time.Duration) leaderelection.RaceEntry {
	return leaderelection.RaceEntry{LeaderID: id, ElectionNumber: leaderelection.ElectionNumber(number), Extension: extension,
		TermExpiry: time.Now().Add(left), TermLength: 10 * time.Second, HostPort: []string{"10.0.0.1:80"}}
}

func get(t *testing.T, url string, into any) int {
	t.Helper()
	r, err := http.Get(url)
	must(t, err)
	defer r.Body.Close()
	if into != nil {
		must(t, json.NewDecoder(r.Body).Decode(into))
	}
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

// ask makes a request, and returns the code of its answer, whose end it does not wait for.
func ask(t *testing.T, method, url string, change func(*http.Request)) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	_ = answer.Body.Close()
	return answer.StatusCode
}

func TestElectionAndLongPoll(t *testing.T) {
	s := serve(t, nil)
	var now state.State
	if code := get(t, s.URL+"/election", &now); code != 200 || now.State != state.None {
		t.Errorf("%d %+v", code, now)
	}
	answered := make(chan state.State)
	go func() {
		var after state.State
		get(t, s.URL+"/election?wait=1m&after=1", &after)
		answered <- after
	}()
	s.hub.Record(led("a", 1, 0, 10*time.Second))
	if get(t, s.URL+"/election", &now); now.State != state.Led || now.LeaderID != "a" || now.Left < 5 {
		t.Errorf("%+v", now)
	}
	get(t, s.URL+"/election?wait=10ms&after=1", &now)
	if now.Token != 1 {
		t.Errorf("after the wait: %+v", now)
	}
	s.hub.Record(led("b", 2, 0, 10*time.Second))
	if after := <-answered; after.Token != 2 || after.LeaderID != "b" {
		t.Errorf("the long poll was answered %+v", after)
	}
	for _, query := range []string{"?after=x", "?wait=soon", "?wait=-1s", "?wait=30", "?after=-1"} {
		if code := get(t, s.URL+"/election"+query, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, code)
		}
	}
}

// next is the next event of a stream, and its data.
func next(t *testing.T, lines *bufio.Scanner) (id, event string, s state.State) {
	t.Helper()
	for lines.Scan() {
		switch key, value, _ := strings.Cut(lines.Text(), ": "); key {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			must(t, json.Unmarshal([]byte(value), &s))
		case "":
			if event != "" {
				return id, event, s
			}
		}
	}
	t.Fatalf("the stream ended: %v", lines.Err())
	return
}

func TestEvents(t *testing.T) {
	s := serve(t, nil)
	open := func(lastID string) *bufio.Scanner {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/events", nil)
		must(t, err)
		if lastID != "" {
			r.Header.Set("Last-Event-ID", lastID)
		}
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		t.Cleanup(func() { answer.Body.Close() })
		return bufio.NewScanner(answer.Body)
	}
	lines := open("")
	if _, event, now := next(t, lines); event != "state" || now.State != state.None {
		t.Errorf("first: %s %+v", event, now)
	}
	s.hub.Record(led("a", 1, 0, time.Second))
	s.hub.Record(led("a", 1, 1, 20*time.Millisecond))
	var ids []string
	for _, want := range []string{state.Elected, state.Extension, state.Lapse} {
		id, event, now := next(t, lines)
		if ids = append(ids, id); event != want || now.Token != 1 || (event == state.Lapse) != (now.State == state.Lapsed) {
			t.Errorf("event %s %+v, want %s", event, now, want)
		}
	}
	// One that comes back is told what it has missed.
	again := open(ids[0])
	next(t, again)
	if _, event, _ := next(t, again); event != state.Extension {
		t.Errorf("after coming back: %s", event)
	}
	vacant := led("", 1, 2, 0)
	s.hub.Record(vacant)
	if _, event, now := next(t, lines); event != state.Vacancy || now.State != state.Vacant {
		t.Errorf("%s %+v", event, now)
	}
	var leaderships []sidecar.Leadership
	get(t, s.URL+"/leaderships", &leaderships)
	if len(leaderships) != 1 || leaderships[0].End != state.Lapse || leaderships[0].To.IsZero() {
		t.Errorf("leaderships %+v", leaderships)
	}
}

// A load balancer may ask for /leader by any method, as that of lehttp.Probes: it is 200 nowhere else
// than on the leader, though all know who leads.
func TestLeaderOnlyWhileLeading(t *testing.T) {
	probes := func(when, url string, want map[string]int) {
		t.Helper()
		for path, code := range want {
			if got := get(t, url+path, nil); got != code {
				t.Errorf("%s: %s: %d, want %d", when, path, got, code)
			}
		}
	}
	observer := serve(t, nil)
	observer.hub.Record(led("another", 1, 0, time.Minute))
	if r, err := http.Post(observer.URL+"/leader", "", nil); err != nil || r.Body.Close() != nil || r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("POST: %+v, %v", r, err)
	}
	probes("observer", observer.URL, map[string]int{"/election": 200, "/leader": 503, "/standby": 503, "/livez": 200})
	elected, release := make(chan leaderelection.ElectionNumber), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	campaign, err := leaderelection.Config{Decider: memory.NewDecider(), LeaderID: "me", TermLength: time.Minute,
		OnElected: func(_ context.Context, view *leaderelection.TimeView) { elected <- view.ElectionNumber(); <-release }}.Start(ctx)
	must(t, err)
	s := serve(t, campaign)
	number := <-elected
	for campaign.Status() != leaderelection.Leading {
		<-time.After(time.Millisecond) // it is about to be published
	}
	probes("leading", s.URL, map[string]int{"/election": 200, "/standby": 503, "/livez": 200})
	var self sidecar.Self
	if code := get(t, s.URL+"/leader", &self); code != 200 || !self.Leading || self.Left <= 0 || self.Token != uint64(number) {
		t.Errorf("leading with token %d: %d %+v", number, code, self)
	}
	cancel()
	for campaign.Status() == leaderelection.Leading {
		<-time.After(time.Millisecond)
	}
	// The view is still in the future, but what is led is being given up.
	if code := get(t, s.URL+"/leader", &self); code != http.StatusServiceUnavailable {
		t.Errorf("draining: %d", code)
	}
	close(release)
	_ = campaign.Wait() // ctx was cancelled
	probes("stopped", s.URL, map[string]int{"/standby": 503, "/livez": 503})
}

func TestElectionName(t *testing.T) {
	for raw, want := range map[string]string{
		"s3://bucket/app?region=eu-central-1&endpoint=http://10.0.0.1": "s3://bucket/app",
		"redis://user:geheim@h:6379/0?key=election:web&tls_ca=ca.pem":  "redis://h:6379/0?key=election%3Aweb",
		"postgres://user:geheim@h/db?election=web&password=geheim":     "postgres://h/db?election=web",
		"s3://%zz": "election",
	} {
		if got := sidecar.ElectionName(raw); got != want || strings.Contains(got, "geheim") {
			t.Errorf("%s is called %s, want %s", raw, got, want)
		}
	}
}

func secretOf(s string) func() (string, error) {
	return func() (string, error) { return s, nil }
}

// A secret that is renewed counts at once, and one that cannot be read lets nobody in.
func TestRenewedSecret(t *testing.T) {
	now, unread := "the first of two secrets", error(nil)
	s := serve(t, nil, func(c *sidecar.Config) { c.Secret = func() (string, error) { return now, unread } })
	s.hub.Record(led("b", 1, 0, 10*time.Second))
	post := func(secret string) int {
		return ask(t, "POST", s.URL+"/stepdown", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) })
	}
	before := post(now)
	now = "the second of two secrets"
	if old, renewed := post("the first of two secrets"), post(now); before != http.StatusAccepted || old != http.StatusForbidden || renewed != http.StatusAccepted {
		t.Errorf("before %d; then the old one %d, the new one %d", before, old, renewed)
	}
	if now, unread = "", errors.New("no such file"); post("") != http.StatusForbidden {
		t.Error("without a secret, somebody may ask")
	}
}

func TestWhoMayAsk(t *testing.T) {
	s := serve(t, nil)
	guarded := serve(t, nil, func(c *sidecar.Config) { c.Secret = secretOf("a secret of some length") })
	readOnly := serve(t, nil, func(c *sidecar.Config) { c.ReadOnly = true })
	for _, s := range []*served{s, guarded, readOnly} {
		s.hub.Record(led("b", 1, 0, 10*time.Second))
	}
	post := func(path string, change func(*http.Request)) int { return ask(t, "POST", path, change) }
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	token := header("Authorization", "Bearer a secret of some length")
	for _, c := range []struct {
		what   string
		s      *served
		path   string
		change func(*http.Request)
		want   int
	}{
		{"this machine", s, "/stepdown", nil, 202},
		{"this machine", s, "/transfer?to=b", nil, 202},
		{"to nobody who has been seen", s, "/transfer?to=c", nil, 409},
		{"the same by force", s, "/transfer?to=c&force=true", nil, 202},
		{"no ID", s, "/transfer", nil, 400},
		{"anybody's ID", s, "/transfer?to=*", nil, 400},
		{"through a proxy", s, "/stepdown", header("X-Forwarded-For", "203.0.113.7"), 403},
		{"through a proxy that says so with nothing", s, "/stepdown", func(r *http.Request) { r.Header["X-Forwarded-For"] = []string{""} }, 403},
		{"through nginx", s, "/stepdown", header("X-Real-IP", "203.0.113.7"), 403},
		{"through a cache", s, "/stepdown", header("Via", "1.1 varnish"), 403},
		{"through Cloudflare", s, "/stepdown", header("CF-Connecting-IP", "203.0.113.7"), 403},
		{"through Apache", s, "/stepdown", header("X-Forwarded-Host", "a.example"), 403},
		{"through Traefik", s, "/stepdown", header("X-Forwarded-Server", "a"), 403},
		{"through Akamai", s, "/stepdown", header("True-Client-IP", "203.0.113.7"), 403},
		{"through a proxy of RFC 7239", s, "/stepdown", header("Forwarded", "for=203.0.113.7"), 403},
		{"a name that points here", s, "/stepdown", host("evil.example"), 421},
		{"an allowed name, which is not this machine's", s, "/stepdown", host("allowed.example"), 403},
		{"a page of elsewhere", s, "/stepdown", header("Sec-Fetch-Site", "cross-site"), 403},
		{"a page of elsewhere", s, "/stepdown", header("Origin", "https://evil.example"), 403},
		{"this machine, without the token", guarded, "/stepdown", nil, 403},
		{"a wrong token", guarded, "/stepdown", header("Authorization", "Bearer nonsense"), 403},
		{"the token", guarded, "/stepdown", token, 202},
		{"the token through a proxy", guarded, "/transfer?to=b", func(r *http.Request) { token(r); r.Header.Set("X-Forwarded-For", "203.0.113.7") }, 202},
		{"the token in a page of elsewhere", guarded, "/stepdown", func(r *http.Request) { token(r); r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		{"read-only", readOnly, "/stepdown", nil, 403},
		{"read-only", readOnly, "/transfer?to=b", token, 403},
	} {
		if got := post(c.s.URL+c.path, c.change); got != c.want {
			t.Errorf("%s, %s: %d, want %d", c.what, c.path, got, c.want)
		}
	}
	if want := "* b"; strings.Join(guarded.asked, " ") != want || len(readOnly.asked) > 0 {
		t.Errorf("asked %q, want %q, and %q of the read-only one", guarded.asked, want, readOnly.asked)
	}
	if want := "* b c"; strings.Join(s.asked, " ") != want {
		t.Errorf("asked %q, want %q", s.asked, want)
	}
	for _, s.answer = range []error{leaderelection.ErrNoLeader, leaderelection.ErrRefused} {
		if got := post(s.URL+"/stepdown?force=true", nil); got != http.StatusConflict || s.asked[len(s.asked)-1] != "**" {
			t.Errorf("%v: %d, asked %q", s.answer, got, s.asked)
		}
	}
	s.answer = errors.New("the store is gone")
	if got := post(s.URL+"/stepdown", nil); got != http.StatusBadGateway {
		t.Errorf("no store: %d", got)
	}
	for _, path := range []string{"/self", "/livez", "/metrics", "/nothing", "/page.js", "/events"} {
		r, err := http.Get(s.URL + path)
		must(t, err)
		if r.Body.Close(); r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: a browser may take the answer for something else: %v", path, r.Header)
		}
	}
	if code := get(t, s.URL+"/stepdown", nil); code != http.StatusMethodNotAllowed {
		t.Errorf("GET /stepdown: %d", code)
	}
}

// Names are text, whatever they say: the pages' scripts make no HTML.
func TestPageMakesNoHTML(t *testing.T) {
	scripts, err := filepath.Glob("page/*.js")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		must(t, err)
		if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|eval\(`).Find(text); found != nil {
			t.Errorf("%s has %s", name, found)
		}
	}
}

// Of more events than are remembered, the newest are.
func TestNewestEventsAreRemembered(t *testing.T) {
	hub := sidecar.NewHub(100 * time.Millisecond)
	defer hub.Close()
	e := led("a", 1, 7, time.Minute)
	for range 300 {
		e.Extension++
		hub.Record(e)
	}
	events, last, _ := hub.After(0)
	if len(events) != 256 || last != 300 || events[0].ID != 45 || events[255].ID != 300 {
		t.Errorf("%d events, up to %d: the first is %d", len(events), last, events[0].ID)
	}
	if events, _, _ := hub.After(299); len(events) != 1 || events[0].ID != 300 {
		t.Errorf("after the last but one: %+v", events)
	}
}

// An observer whose watch does not look when a term has run out is not alive; one that looks is,
// whatever the store says, and one that has nothing to look for.
func TestLivezOfAWatchThatIsStuck(t *testing.T) {
	const term, skew = 10 * time.Second, time.Second
	for name, c := range map[string]struct {
		before func(h *sidecar.Hub) // the term is over
		vacant bool
		want   int
	}{
		"stuck":        {func(*sidecar.Hub) {}, false, http.StatusServiceUnavailable},
		"has looked":   {(*sidecar.Hub).Looked, false, http.StatusOK},
		"nobody leads": {func(*sidecar.Hub) {}, true, http.StatusOK},
		"is told of others": {func(h *sidecar.Hub) {
			e := led("a", 2, 0, time.Minute)
			e.TermLength = time.Minute
			h.Record(e)
		}, false, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := sidecar.NewHub(skew)
				defer hub.Close()
				live := func() int {
					w := httptest.NewRecorder()
					r := httptest.NewRequest("GET", "http://localhost/livez", nil)
					sidecar.Handler(sidecar.Config{Hub: hub, Campaign: none, Metrics: http.NotFoundHandler()}).ServeHTTP(w, r)
					return w.Code
				}
				if code := live(); code != http.StatusOK {
					t.Errorf("before it knows of anybody: %d", code)
				}
				e := led("a", 1, 0, term)
				if c.vacant {
					e.LeaderID = ""
				}
				hub.Record(e)
				hub.Looked()
				time.Sleep(term + skew + time.Second)
				c.before(hub)
				if code := live(); code != http.StatusOK {
					t.Errorf("just after the term: %d", code)
				}
				time.Sleep(time.Minute)
				if code := live(); code != c.want {
					t.Errorf("a minute later: %d, want %d", code, c.want)
				}
				hub.Record(led("a", 9, 0, term))
				if code := live(); code != http.StatusOK {
					t.Errorf("when it goes on: %d", code)
				}
			})
		})
	}
}

// Anybody may ask /livez: why a campaign is stuck, which may name the store, is for the log.
func TestLivezTellsNoNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const term, place = 10 * time.Second, "arn:aws:s3:::bucket"
		store := memory.NewDecider().Handle()
		ctx, cancel := context.WithCancel(t.Context())
		campaign, err := leaderelection.Config{Decider: store, LeaderID: "me", TermLength: term, Logger: slog.New(slog.DiscardHandler),
			OnElected: func(context.Context, *leaderelection.TimeView) {}}.Start(ctx)
		must(t, err)
		hub := sidecar.NewHub(time.Second)
		defer hub.Close()
		synctest.Wait()
		store.Inject(memory.Fail(fmt.Errorf("%s: %w", place, leaderelection.ErrPermanent)))
		time.Sleep(6 * term)
		var log bytes.Buffer
		w := httptest.NewRecorder()
		sidecar.Handler(sidecar.Config{Hub: hub, Campaign: func() *leaderelection.Campaign { return campaign }, Metrics: http.NotFoundHandler(),
			Logger: slog.New(slog.NewTextHandler(&log, nil))}).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/livez", nil))
		if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "arn") || !strings.Contains(log.String(), place) {
			t.Errorf("%d %s, and it is logged: %s", w.Code, w.Body, log.String())
		}
		cancel()
		<-campaign.Done()
	})
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
