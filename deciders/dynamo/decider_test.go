//go:build go1.25

package dynamo_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func TestMain(m *testing.M) {
	proctest.Main(dynamo.Open)
	goleak.VerifyTestMain(m)
}

// Three processes on one emulator: one leader is killed, one is stopped past its
// term, one is cut off.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	endpoint := stores.DynamoDBLocal(t)
	makeTable(t, newClient(t, endpoint), "elections", "key:S")
	proctest.Run(t, proctest.Options{
		Address:  "dynamodb://elections/team/one?region=eu-central-1&endpoint=" + endpoint,
		Upstream: strings.TrimPrefix(endpoint, "http://"),
		Env:      stores.AWSEnv("key", "secret"),
	})
}

// credentials are what the emulators take.
func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
}

// newClient returns a client of its own, with connections of its own.
func newClient(t testing.TB, endpoint string, change ...func(*dynamodb.Options)) *dynamodb.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(tr.CloseIdleConnections)
	o := dynamodb.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(endpoint),
		Credentials:  aws.CredentialsProviderFunc(credentials),
		HTTPClient:   &http.Client{Transport: whole{tr}},
	}
	for _, c := range change {
		c(&o)
	}
	return dynamodb.New(o)
}

// whole returns answers that have been read to their end. The SDK closes a request's body as soon as
// the answer begins; if the transport still looks for that body's end, as it may when a server on
// loopback is fast, it closes the connection, and the rest of a long answer is lost. A candidate reads
// again then; these tests do not.
type whole struct{ http.RoundTripper }

func (w whole) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		return nil, err
	}
	a.Body = io.NopCloser(bytes.NewReader(body))
	return a, nil
}

// TestEmulators runs what follows on each emulator, which is started once.
func TestEmulators(t *testing.T) {
	for name, start := range map[string]func(testing.TB) string{"dynalite": stores.Dynalite, "DynamoDBLocal": stores.DynamoDBLocal} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "dynalite" {
				t.Skip("nightly: the suite once more")
			}
			endpoint := start(t)
			for name, run := range map[string]func(t *testing.T, endpoint string){
				"Conformance": conformance, "ItemThatIsNotOurs": itemThatIsNotOurs, "WhatIsWritten": whatIsWritten, "WrongPlace": wrongPlace, "Open": openByURL,
			} {
				t.Run(name, func(t *testing.T) { run(t, endpoint) })
			}
		})
	}
}

// The server of the tests in virtual time is one that others can be held to.
func TestConformanceOfTheFake(t *testing.T) {
	for _, old := range []bool{true, false} {
		t.Run(fmt.Sprintf("ReturnsTheItem=%v", old), func(t *testing.T) {
			decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
				server := newFake("key")
				server.old = old
				return func() leaderelection.RaceDecider {
					return dynamo.NewDecider(reach(t, server), "elections", "one", nil)
				}
			}, nil)
		})
	}
}

func conformance(t *testing.T, endpoint string) {
	for i, l := range []struct {
		name string
		o    dynamo.Options
	}{
		{"Defaults", dynamo.Options{CreateTable: true}},
		{"SortKey", dynamo.Options{PartitionKey: "PK", SortKey: "SK", SortValue: "leader", CreateTable: true}},
	} {
		t.Run(l.name, func(t *testing.T) {
			var elections atomic.Int64
			decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
				key := fmt.Sprintf("team/%d ü", elections.Add(1))
				return func() leaderelection.RaceDecider {
					return dynamo.NewDecider(newClient(t, endpoint), fmt.Sprintf("conformance-%d", i), key, &l.o)
				}
			}, nil)
		})
	}
}

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

func TestDisbelieves(t *testing.T) {
	s := overHTTP(t)
	overhttp.Disbelieves(t, s, &httpfault.Transport{Handler: s.Serve()})
}

func TestNobodyLeads(t *testing.T) { overhttp.NobodyLeads(t, overHTTP(t)) }

// An imitation that takes no notice of one of the conditions has nobody lead.
func TestDeafNobodyLeads(t *testing.T) {
	overhttp.DeafNobodyLeads(t, overHTTP(t), map[string]func(*http.Request){
		"Version":   func(r *http.Request) { r.Header.Set(deafTo, "#v") },
		"NotExists": func(r *http.Request) { r.Header.Set(deafTo, "attribute_not_exists") },
	})
}

// The client that Open makes leaves a connection that has died without a word, though the server
// speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	stores.AWSAlone(t, "key", "secret")
	relay := stores.NewRelay(t, stores.HTTP2(t, newFake("key")))
	d, err := feedtest.Open(t.Context(), dynamo.Open, "dynamodb://elections/one?region=eu-central-1&endpoint="+url.QueryEscape("https://"+relay.Addr))
	if err != nil {
		t.Fatal(err)
	}
	feedtest.Abandons(t, d, relay.Swallow)
}

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	candidate := leaderelection.Config{Decider: dynamo.NewDecider(dynamodb.NewFromConfig(cfg), "elections", "reports/nightly", nil), LeaderID: "web-1"}
	log.Print(candidate.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
