package s3_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
)

// as returns the credentials of one of versitygw's accounts.
func as(account string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: account, SecretAccessKey: account + "-secret"}, nil
	})
}

// newClient returns a client of its own, with connections of its own.
func newClient(t testing.TB, endpoint string, change ...func(*awss3.Options)) *awss3.Client {
	tr := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(tr.CloseIdleConnections)
	o := awss3.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(endpoint),
		UsePathStyle: true,
		Credentials:  as("root"),
		HTTPClient:   &http.Client{Transport: tr},
		// As in a client that config.LoadDefaultConfig leads to.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}
	for _, c := range change {
		c(&o)
	}
	return awss3.New(o)
}

var buckets atomic.Int64

// newBucket returns the name of a new bucket.
func newBucket(t testing.TB, client *awss3.Client) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", buckets.Add(1))
	if _, err := client.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestServers runs what follows on each server, which is started once.
func TestServers(t *testing.T) {
	for _, s := range []struct {
		name  string
		start func(testing.TB) string
	}{
		{"versitygw", stores.Versitygw},
		{"in process", fakes3.Serve},
	} {
		t.Run(s.name, func(t *testing.T) {
			endpoint := s.start(t)
			for _, test := range []struct {
				name string
				run  func(t *testing.T, endpoint string)
			}{
				{"Conformance", conformance},
				{"VersionedBucket", versionedBucket},
				{"VerifyConditionalWrites", verifies},
				{"ObjectThatIsNotOurs", objectThatIsNotOurs},
				{"EditedByHand", editedByHand},
				{"Deleted", deleted},
				{"WrongPlace", wrongPlace},
				{"Open", openByURL},
			} {
				t.Run(test.name, func(t *testing.T) { test.run(t, endpoint) })
			}
			if s.name == "versitygw" { // the other takes any
				t.Run("WrongCredentials", func(t *testing.T) { wrongCredentials(t, endpoint) })
			}
		})
	}
}

func conformance(t *testing.T, endpoint string) {
	conforms(t, endpoint, newBucket(t, newClient(t, endpoint)), nil)
}

// Each write leaves a version behind, and no more.
func versionedBucket(t *testing.T, endpoint string) {
	client := newClient(t, endpoint)
	bucket := newBucket(t, client)
	if _, err := client.PutBucketVersioning(t.Context(), &awss3.PutBucketVersioningInput{
		Bucket: &bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	}); err != nil {
		t.Fatal(err)
	}
	conforms(t, endpoint, bucket, nil)
}

// conforms runs the suite in a bucket.
func conforms(t *testing.T, endpoint, bucket string, o *s3.Options) {
	var elections atomic.Int64
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		key := fmt.Sprintf("team/%d ü+", elections.Add(1))
		return func() leaderelection.RaceDecider {
			return s3.NewDecider(newClient(t, endpoint), bucket, key, o)
		}
	}, nil)
}

func verifies(t *testing.T, endpoint string) {
	client := newClient(t, endpoint)
	bucket := newBucket(t, client)
	if err := s3.NewDecider(client, bucket, "election", nil).VerifyConditionalWrites(t.Context()); err != nil {
		t.Error(err)
	}
	left, err := client.ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: &bucket})
	if err != nil || len(left.Contents) > 0 {
		t.Errorf("objects left behind: %d, %v", len(left.Contents), err)
	}
}
