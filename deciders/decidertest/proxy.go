package decidertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// Proxy is an http.RoundTripper for the client of a store, see Options.Proxy. It hands
// requests on to Next (nil: http.DefaultTransport), and lies when the suite has it lie: it
// then answers by itself, with success and an empty page, or a page of HTML, as portals
// and broken proxies do.
type Proxy struct {
	Next http.RoundTripper

	liar httpfault.Liar
}

// RoundTrip implements http.RoundTripper.
func (p *Proxy) RoundTrip(r *http.Request) (*http.Response, error) { return p.liar.RoundTrip(r) }

// pages are those of the lies that no client need be fooled by: they have nothing of what
// an answer of a store has.
var pages = []string{"Empty200", "Empty201", "Empty204", "Accepted202", "Braces200", "Braces201", "Page200", "Page201"}

// A success is proved: an answer that anything on the way could have made up is none.
func proxyNotBelieved(h *harness) {
	p := h.Proxy
	p.liar.Next = p.Next
	if p.Next == nil {
		p.liar.Next = http.DefaultTransport
	}
	h.Cleanup(func() { p.liar.Tell(nil) })
	d := h.handle()
	h.disbelieves(d, h.read(d))
	h.write(d, nil, h.state(1, 0))
	h.disbelieves(d, h.readBack(d, h.state(1, 0)))
	h.readBack(d, h.state(1, 0))
}

// disbelieves fails the test if a lie about the record, which is now, is believed.
func (h *harness) disbelieves(d leaderelection.RaceDecider, now *leaderelection.RaceEntry) {
	h.Helper()
	writes := func(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }
	for _, lie := range httpfault.Lies() {
		if !slices.Contains(pages, lie.Name) {
			continue
		}
		for what, about := range map[string]func(*http.Request) bool{"all requests": nil, "writes": writes} {
			h.Proxy.liar.About = about
			h.Proxy.liar.Tell(&lie)
			h.believes(fmt.Sprintf("%s are answered by a proxy (%s)", what, lie.Name), d, now, about == nil)
			h.Proxy.liar.Tell(nil)
		}
	}
	h.same("after lies about it", h.read(d), now)
}

// believes makes each call, and fails the test if it succeeds: a read only if it
// returns another record than the one that is there.
func (h *harness) believes(when string, d leaderelection.RaceDecider, now *leaderelection.RaceEntry, reads bool) {
	h.Helper()
	ctx, cancel := h.soon()
	defer cancel()
	tokens := []leaderelection.LeaderToken{now.Token, nil}
	for _, token := range tokens {
		next, err := d.WriteEntry(ctx, with(token, h.state(9, 9)))
		switch {
		case err == nil:
			h.Errorf("WriteEntry returned the token %#v while %s: a success must have what only the store's answer has, such as the new version", next, when)
		case errors.Is(err, context.DeadlineExceeded):
			h.Errorf("WriteEntry is not done after %v while %s: %v", h.Patience, when, err)
		}
	}
	if h.Proxy.liar.Told() == 0 {
		h.Fatalf("no request of WriteEntry has come by Options.Proxy: give it to the client of each handle")
	}
	if !reads {
		return
	}
	e, err := d.ReadCurrent(ctx)
	switch {
	case err != nil:
	case e == nil:
		h.Errorf("ReadCurrent returned nil without an error while %s", when)
	default:
		h.Errorf("ReadCurrent returned %s while %s: only the store may say that there is no record", show(e), when)
	}
}
