package dynamo_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

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
	for _, e := range []struct {
		name  string
		start func(testing.TB) string
	}{
		{"dynalite", stores.Dynalite},
		{"DynamoDBLocal", stores.DynamoDBLocal},
	} {
		t.Run(e.name, func(t *testing.T) {
			if testing.Short() && e.name != "dynalite" {
				t.Skip("nightly: the suite once more")
			}
			endpoint := e.start(t)
			for _, test := range []struct {
				name string
				run  func(t *testing.T, endpoint string)
			}{
				{"Conformance", conformance},
				{"ItemThatIsNotOurs", itemThatIsNotOurs},
				{"WhatIsWritten", whatIsWritten},
				{"WrongPlace", wrongPlace},
				{"Open", openByURL},
			} {
				t.Run(test.name, func(t *testing.T) { test.run(t, endpoint) })
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
