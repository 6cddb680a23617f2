package azblob_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func TestDisbelieves(t *testing.T) {
	s := overHTTP(t, nil)
	overhttp.Disbelieves(t, s, &httpfault.Transport{Handler: s.Serve()})
}

// The same on the emulator, whose answers are more like the service's.
func TestDisbelievesOnAzurite(t *testing.T) {
	server := azurite(t)
	s := overHTTP(t, nil)
	s.Decider = func(c *http.Client) leaderelection.RaceDecider {
		return azblob.NewDecider(client(t, server, &sdk.ClientOptions{ClientOptions: policy.ClientOptions{Transport: c}}), containerName, "one", nil)
	}
	tr := new(http.Transport)
	defer tr.CloseIdleConnections()
	overhttp.Disbelieves(t, s, tr)
}

func TestNobodyLeads(t *testing.T) { overhttp.NobodyLeads(t, overHTTP(t, nil)) }

// A native lease is held only if the answer names it. The leadership does not depend on it.
func TestNativeLeaseIsProved(t *testing.T) {
	for _, lie := range httpfault.Lies() {
		if strings.HasPrefix(lie.Name, "Echo") {
			continue // the name is all that such an answer has; Azure refuses who names a lease that it did not give
		}
		t.Run(lie.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &httpfault.Transport{Handler: newFake()}
				liar := &httpfault.Liar{Next: server, About: func(r *http.Request) bool { return r.URL.Query().Get("comp") == "lease" }}
				before := lead(t, native(over(t, &http.Client{Transport: liar})), 15*time.Second) // for replays
				before.stop()
				liar.Tell(&lie)
				d := native(over(t, &http.Client{Transport: liar}))
				l := lead(t, d, 15*time.Second)
				time.Sleep(time.Minute)
				if only, err := d.Held(l.view); err == nil {
					t.Errorf("%v is believed to be held", only)
				}
				if !l.view.ValueInFuture() || liar.Told() == 0 {
					t.Errorf("leads: %v, after %d lies", l.view.ValueInFuture(), liar.Told())
				}
				liar.Tell(nil)
			})
		})
	}
}

// An imitation that takes no notice of If-Match, or of If-None-Match, has nobody lead.
func TestDeafNobodyLeads(t *testing.T) {
	overhttp.DeafNobodyLeads(t, overHTTP(t, nil), map[string]func(*http.Request){
		"IfMatch":     func(r *http.Request) { r.Header.Del("If-Match") },
		"IfNoneMatch": func(r *http.Request) { r.Header.Del("If-None-Match") },
	})
}
