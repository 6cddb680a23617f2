//go:build go1.25

package dynamo_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// inProcess returns a client without sockets.
func inProcess(t testing.TB, c *http.Client) *dynamodb.Client {
	return newClient(t, "http://in-process", func(o *dynamodb.Options) { o.HTTPClient = c })
}

// reach returns a client of a server in process.
func reach(t testing.TB, h http.Handler) *dynamodb.Client {
	return inProcess(t, &http.Client{Transport: &httpfault.Transport{Handler: h}})
}

func TestElections(t *testing.T) { overhttp.Elections(t, overHTTP(t)) }

// Whole elections, by seed, with whatever can go wrong with HTTP.
func TestSeeds(t *testing.T) { overhttp.Seeds(t, overHTTP(t), 50) }

// overHTTP is the store, for elections over its real client.
func overHTTP(t *testing.T) overhttp.Store {
	return overhttp.Store{
		Serve: func() http.Handler { return newFake("key") },
		Decider: func(c *http.Client) leaderelection.RaceDecider {
			return dynamo.NewDecider(inProcess(t, c), "elections", "one", nil)
		},
		Place:  `DynamoDB table "elections", key "one"`,
		Writes: func(r *http.Request) bool { return strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".UpdateItem") },
		Busy: map[string]httpfault.Fault{
			"Throttled":       refusal(http.StatusBadRequest, "ThrottlingException"),
			"OverProvisioned": refusal(http.StatusBadRequest, "ProvisionedThroughputExceededException"),
			"RequestLimit":    refusal(http.StatusBadRequest, "RequestLimitExceeded"),
			"InternalError":   refusal(http.StatusInternalServerError, "InternalServerError"),
			"Transaction":     refusal(http.StatusBadRequest, "TransactionConflictException"),
			"OtherRegion":     refusal(http.StatusBadRequest, "ReplicatedWriteConflictException"),
		},
	}
}
