//go:build go1.25

package s3_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func TestMain(m *testing.M) {
	proctest.Main(s3.Open)
	goleak.VerifyTestMain(m)
}

// Three processes on one server: one leader is killed, one is stopped past its
// term, one is cut off.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	endpoint := stores.Versitygw(t)
	bucket := newBucket(t, newClient(t, endpoint))
	proctest.Run(t, proctest.Options{
		Address:  "s3://" + bucket + "/team/one?region=us-east-1&path_style=true&endpoint=" + endpoint,
		Upstream: strings.TrimPrefix(endpoint, "http://"),
		Env:      stores.AWSEnv("root", "root-secret"),
	})
}

// as returns the credentials of one of versitygw's accounts.
func as(account string) aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(account, account+"-secret", "")
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
	for server, start := range map[string]func(testing.TB) string{"versitygw": stores.Versitygw, "in process": fakes3.Serve} {
		t.Run(server, func(t *testing.T) {
			endpoint := start(t)
			for name, run := range map[string]func(t *testing.T, endpoint string){
				"Conformance": conformance, "VersionedBucket": versionedBucket, "VerifyConditionalWrites": verifies,
				"ObjectThatIsNotOurs": objectThatIsNotOurs, "EditedByHand": editedByHand, "Deleted": deleted,
				"WrongPlace": wrongPlace, "Open": openByURL,
			} {
				t.Run(name, func(t *testing.T) { run(t, endpoint) })
			}
			if server == "versitygw" { // the other takes any
				t.Run("WrongCredentials", func(t *testing.T) { wrongCredentials(t, endpoint) })
			}
		})
	}
}

func conformance(t *testing.T, endpoint string) {
	conforms(t, endpoint, newBucket(t, newClient(t, endpoint)))
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
	conforms(t, endpoint, bucket)
}

// conforms runs the suite in a bucket.
func conforms(t *testing.T, endpoint, bucket string) {
	var elections atomic.Int64
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		key := fmt.Sprintf("team/%d ü+", elections.Add(1))
		return func() leaderelection.RaceDecider {
			return s3.NewDecider(newClient(t, endpoint), bucket, key, nil)
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

// refusal is an answer of S3 itself.
func refusal(status int, code string) httpfault.Fault {
	return httpfault.Fault{
		Status: status,
		Header: http.Header{"Content-Type": {"application/xml"}},
		Body:   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + code + "</Code><Message>said the server</Message></Error>",
	}
}

func TestElections(t *testing.T) { overhttp.Elections(t, overHTTP(t)) }

// Whole elections, by seed, with whatever can go wrong with HTTP.
func TestSeeds(t *testing.T) { overhttp.Seeds(t, overHTTP(t), 50) }

// overHTTP is the store, for elections over its real client.
func overHTTP(t *testing.T) overhttp.Store {
	return overhttp.Store{
		Serve: func() http.Handler {
			h := fakes3.Handler()
			createBucket(t, h, "elections")
			return h
		},
		Decider: func(c *http.Client) leaderelection.RaceDecider {
			return s3.NewDecider(inProcess(t, c), "elections", "one", nil)
		},
		Place:  `S3 bucket "elections", object "one"`,
		Writes: func(r *http.Request) bool { return r.Method == http.MethodPut },
		Busy: map[string]httpfault.Fault{
			"SlowDown":       refusal(http.StatusServiceUnavailable, "SlowDown"),
			"InternalError":  refusal(http.StatusInternalServerError, "InternalError"),
			"RequestTimeout": refusal(http.StatusBadRequest, "RequestTimeout"),
			"Conflict":       refusal(http.StatusConflict, "ConditionalRequestConflict"),
		},
	}
}

// reach returns a client of a server in process. It uses TLS, as far as it knows.
func reach(t testing.TB, h http.Handler) *awss3.Client {
	return inProcess(t, &http.Client{Transport: &httpfault.Transport{Handler: h}})
}

// inProcess returns a client without sockets.
func inProcess(t testing.TB, c *http.Client) *awss3.Client {
	return newClient(t, "https://in-process", func(o *awss3.Options) { o.HTTPClient = c })
}

// createBucket creates a bucket on a server in process.
func createBucket(t testing.TB, h http.Handler, name string) {
	t.Helper()
	ctx := context.Background() // t.Context may be of another bubble
	if _, err := reach(t, h).CreateBucket(ctx, &awss3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
}

func TestDisbelieves(t *testing.T) {
	s := overHTTP(t)
	overhttp.Disbelieves(t, s, &httpfault.Transport{Handler: s.Serve()})
}

func TestNobodyLeads(t *testing.T) { overhttp.NobodyLeads(t, overHTTP(t)) }

// A server that takes no notice of If-Match, or of If-None-Match, is found out before
// anybody leads, and without being asked for it (verify=true).
func TestDeafNobodyLeads(t *testing.T) {
	overhttp.DeafNobodyLeads(t, overHTTP(t), map[string]func(*http.Request){
		"IfMatch":     func(r *http.Request) { r.Header.Del("If-Match") },
		"IfNoneMatch": func(r *http.Request) { r.Header.Del("If-None-Match") },
		"Both":        func(r *http.Request) { r.Header.Del("If-Match"); r.Header.Del("If-None-Match") },
	})
}

// The client that Open makes leaves a connection that has died without a word, though the server
// speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	stores.AWSAlone(t, "root", "root-secret")
	server := fakes3.Serve(t)
	bucket := newBucket(t, newClient(t, server))
	relay := stores.NewRelay(t, stores.HTTP2Before(t, server))
	d, err := open(t, "s3://"+bucket+"/one?region=us-east-1&path_style=true&endpoint="+url.QueryEscape("https://"+relay.Addr))
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
	decider := s3.NewDecider(awss3.NewFromConfig(cfg), "elections", "reports/nightly", nil) // see VerifyConditionalWrites
	candidate := leaderelection.Config{Decider: decider, LeaderID: "web-1"}
	log.Print(candidate.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}

// A bucket whose policy demands a tag of each object that is written.
func ExampleClient() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s3.NewDecider(tagged{awss3.NewFromConfig(cfg)}, "elections", "reports/nightly", nil))
}

// tagged is a client that tags what it writes.
type tagged struct{ *awss3.Client }

func (c tagged) PutObject(ctx context.Context, in *awss3.PutObjectInput, opts ...func(*awss3.Options)) (*awss3.PutObjectOutput, error) {
	in.Tagging = aws.String("cost-center=42")
	return c.Client.PutObject(ctx, in, opts...)
}
