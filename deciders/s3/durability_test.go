//go:build go1.25

package s3_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// Only the answers of a real bucket say that a rule deletes the record, that it is a copy, or that
// it is copied.
func TestDurability(t *testing.T) {
	for header, words := range map[string][]string{
		"": nil,
		`X-Amz-Expiration: expiry-date="Fri, 27 Nov 2026 00:00:00 GMT", rule-id="all"`: {"lifecycle rule deletes"},
		"X-Amz-Replication-Status: REPLICA":                                            {"it is a copy"},
		"X-Amz-Replication-Status: PENDING":                                            {"is replicated to another"},
		"X-Amz-Replication-Status: COMPLETED":                                          {"is replicated to another"},
	} {
		d := s3.NewDecider(like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			if name, value, is := strings.Cut(header, ": "); is && r.Method == http.MethodGet {
				w.Header().Set(name, value)
			}
			server.ServeHTTP(w, r)
		}), "elections", "one", nil)
		if _, err := d.Durability(t.Context()); err == nil || !strings.Contains(err.Error(), "no record yet") {
			t.Errorf("%s: before anybody has led: %v", header, err)
		}
		feedtest.Write(t, d, 1, nil)
		feedtest.Examines(t, d, words...)
		feedtest.Reads(t, d, 1)
	}
}

// directory is a directory bucket, as Amazon documents them: each request but CreateSession has a
// session's token, which lasts for some minutes; Content-MD5 is not known; ETags are random; and a
// bucket that was not used for long answers 503 for a while.
type directory struct {
	server http.Handler

	mu       sync.Mutex
	sleepy   int               // how many answers are 503 yet
	sessions []string          // the tokens that count
	etags    map[string]string // by those of the server
}

const bucketOfDirectory = "elections--use1-az4--x-s3"

func (d *directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch _, session := r.URL.Query()["session"]; {
	case !strings.HasPrefix(r.Host+r.URL.Host, bucketOfDirectory+".s3express-use1-az4.us-east-1.amazonaws.com"):
		failWith(w, http.StatusBadRequest, "IncorrectEndpoint")
		return
	case session:
		token := rand.Text()
		d.sessions = append(d.sessions, token)
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprintf(w, "<CreateSessionResult><Credentials><SessionToken>%s</SessionToken><SecretAccessKey>s</SecretAccessKey><AccessKeyId>k</AccessKeyId><Expiration>%s</Expiration></Credentials></CreateSessionResult>",
			token, time.Now().Add(5*time.Minute).UTC().Format(time.RFC3339))
		return
	case !slices.Contains(d.sessions, r.Header.Get("X-Amz-S3session-Token")):
		failWith(w, http.StatusForbidden, "AccessDenied")
		return
	case r.Header.Get("Content-MD5") != "":
		failWith(w, http.StatusNotImplemented, "NotImplemented")
		return
	}
	if d.sleepy > 0 {
		d.sleepy--
		failWith(w, http.StatusServiceUnavailable, "ServiceUnavailable")
		return
	}
	for own, random := range d.etags {
		if r.Header.Get("If-Match") == random {
			r.Header.Set("If-Match", own)
		}
	}
	r.URL.Path = "/elections" + r.URL.Path // as the server here has it
	a := httptest.NewRecorder()
	d.server.ServeHTTP(a, r)
	if own := a.Header().Get("ETag"); own != "" {
		if d.etags[own] == "" {
			d.etags[own] = `"` + strings.ToLower(rand.Text()) + `"`
		}
		a.Header().Set("ETag", d.etags[own])
	}
	answer(w, a)
}

// Elections in a directory bucket, by the client's own sessions and endpoints.
func TestDirectoryBucket(t *testing.T) {
	var elections atomic.Int64
	newBucket := func(t testing.TB) (*directory, *awss3.Client) {
		d := &directory{server: fakes3.Handler(), etags: map[string]string{}}
		createBucket(t, d.server, "elections")
		return d, awss3.New(awss3.Options{
			Region: "us-east-1", Credentials: as("root"), HTTPClient: &http.Client{Transport: &httpfault.Transport{Handler: d}},
			RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		})
	}
	bucket, client := newBucket(t)
	d := s3.NewDecider(client, bucketOfDirectory, "asleep", nil)
	bucket.sleepy = 1
	feedtest.Passing(t, feedtest.WriteError(t, d, 1, nil)) // the bucket is inactive
	token := feedtest.Write(t, d, 1, nil)
	feedtest.Examines(t, d, "one zone")
	bucket.mu.Lock()
	bucket.sessions = nil // as an administrator may end them
	bucket.mu.Unlock()
	if err := feedtest.WriteError(t, d, 2, token); err == nil {
		t.Error("a session that was ended has written")
	}
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		_, client := newBucket(t)
		key := string(rune('a' + elections.Add(1)))
		return func() leaderelection.RaceDecider { return s3.NewDecider(client, bucketOfDirectory, key, nil) }
	}, &decidertest.Options{Rounds: 3})
}
