package fences3_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3/fences3"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
)

func ExamplePut() {
	ctx := context.Background()
	server := httptest.NewServer(fakes3.Handler()) // a program's is Amazon's
	defer server.Close()
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
	bucket, key := aws.String("my-bucket"), aws.String("orders/state.json")
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		fmt.Println(err)
		return
	}

	save := func(number, open int) {
		token := fence.Token{Election: "orders", Number: leaderelection.ElectionNumber(number)} // Gate.Token returns it
		state := fmt.Appendf(nil, `{"writer":%q,"open":%d}`, fences3.Mark(token), open)
		err := fences3.Put(ctx, client, token, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: bytes.NewReader(state)}, nil)
		fmt.Println(err)
	}
	save(1, 17) // the first leader
	save(2, 18) // the second
	save(1, 99) // the first again: it was stopped for longer than its term
	// Output:
	// <nil>
	// <nil>
	// fences3: writing S3 bucket "my-bucket", object "orders/state.json" under orders:1: fence: stale token orders:1: 2 has been seen. If this process leads, the election's record was set back: run leaderelect reset --after 2
}
