package azblob_test

import (
	"net/http"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/deciders/azblob/azlease"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// over returns the real client, with its default retries, over c.
func over(t testing.TB, c *http.Client) *sdk.Client {
	t.Helper()
	client, err := sdk.NewClientWithNoCredential("http://in-process/account", &sdk.ClientOptions{ClientOptions: policy.ClientOptions{Transport: c}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// inProcess returns a client of a server in process.
func inProcess(t testing.TB, h http.Handler, fault func(*http.Request) httpfault.Fault) *sdk.Client {
	return over(t, &http.Client{Transport: &httpfault.Transport{Handler: h, Fault: fault}})
}

func TestFakeIsLikeTheService(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		server := newFake()
		return func() leaderelection.RaceDecider {
			return azblob.NewDecider(inProcess(t, server, nil), containerName, "one", nil)
		}
	}, nil)
}

// overHTTP is the real client over an imitation.
func overHTTP(t *testing.T, opts *azblob.Options) overhttp.Store {
	return overhttp.Store{
		Serve: func() http.Handler { return newFake() },
		Decider: func(c *http.Client) leaderelection.RaceDecider {
			return azblob.NewDecider(over(t, c), containerName, "one", own(opts))
		},
		Place:  "http://in-process/account/elections/one",
		Writes: func(r *http.Request) bool { return r.Method == http.MethodPut },
		Busy: map[string]httpfault.Fault{
			"ServerBusy":        refusal(http.StatusServiceUnavailable, "ServerBusy"),
			"InternalError":     refusal(http.StatusInternalServerError, "InternalError"),
			"OperationTimedOut": refusal(http.StatusInternalServerError, "OperationTimedOut"),
			"TooManyRequests":   refusal(http.StatusTooManyRequests, "TooManyRequests"),
			"BeingDeleted":      refusal(http.StatusConflict, "ContainerBeingDeleted"),
		},
		Blind: map[string]string{"OldAnswerNewestETag": "nothing in an answer binds the ETag to the rest: see the package's documentation"},
	}
}

func TestElections(t *testing.T) { overhttp.Elections(t, overHTTP(t, nil)) }

// Whole elections by seed, with faults on HTTP.
func TestSeeds(t *testing.T) { overhttp.Seeds(t, overHTTP(t, nil), 50) }

func TestSeedsWithNativeLease(t *testing.T) {
	overhttp.Seeds(t, overHTTP(t, &azblob.Options{Leases: azlease.New(nil)}), 50)
}
