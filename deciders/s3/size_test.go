package s3_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
	"github.com/c8e606e4/leaderelection/internal/stores/fakes3"
)

// A record with two addresses stays small.
func TestSizeOfARecord(t *testing.T) {
	h := fakes3.Handler()
	createBucket(t, h, "elections")
	if n := len(stored(t, h)); n > 600 {
		t.Errorf("a record has %d bytes, more than 600", n)
	} else {
		t.Logf("a record has %d bytes", n)
	}
}

// stored returns what an ordinary record looks like in the server's bucket.
func stored(t testing.TB, h http.Handler) []byte {
	t.Helper()
	client := reach(t, h)
	if _, err := s3.NewDecider(client, "elections", "one", nil).WriteEntry(t.Context(), httpfault.Record()); err != nil {
		t.Fatal(err)
	}
	out, err := client.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("elections"), Key: aws.String("one")})
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
