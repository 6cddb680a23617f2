package s3_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/stores"
	"github.com/c8e606e4/leaderelection/internal/testsof/grouptest"
)

func TestMain(m *testing.M) { grouptest.Main(m, s3.Open) }

// Members of a group of package shard, in processes of their own, for as long as
// PROCTEST_GROUP_FOR says. See proctest.RunGroup.
func TestShards(t *testing.T) {
	endpoint := stores.Versitygw(t)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := awss3.New(awss3.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint, UsePathStyle: true, HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("root", "root-secret", ""),
	})
	if _, err := client.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String("groups")}); err != nil {
		t.Fatal(err)
	}
	proctest.RunGroup(t, proctest.GroupOptions{
		Address:  "s3://groups/shards/{name}?region=us-east-1&path_style=true&endpoint=" + endpoint,
		Upstream: strings.TrimPrefix(endpoint, "http://"),
		Env:      stores.AWSEnv("root", "root-secret"),
	})
}
