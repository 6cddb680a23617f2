package s3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/awsurl"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/web"
	"github.com/c8e606e4/leaderelection/deciders/s3/internal/answers"
)

// Open returns a decider for an election given as a URL:
//
//	s3://BUCKET/KEY?region=eu-central-1
//
// KEY may have slashes, and characters escaped as in any URL. The parameters,
// all optional:
//
//	bucket          an access point's ARN in place of BUCKET:
//	                s3:///KEY?bucket=arn:aws:s3:eu-central-1:123456789012:accesspoint/NAME
//	region          the region; else the ARN's, else as the environment says
//	endpoint        the URL of another server, as https://minio.example:9000
//	path_style      true: the bucket is in the URL's path, not in the host's name
//	profile         a profile of the shared AWS configuration
//	sse             Options.ServerSideEncryption, as AES256 or aws:kms
//	sse_kms_key_id  Options.SSEKMSKeyID
//	metadata        one key=value of Options.Metadata; may be given several times
//	bucket_owner    Options.ExpectedBucketOwner
//	checksum        Options.ChecksumAlgorithm, as CRC32
//	opaque_etags    true: Options.OpaqueETags
//	unquoted_etag   true: Options.UnquotedETag
//	verify          true: VerifyConditionalWrites must find nothing
//
// Credentials come from the SDK's usual chain (environment, shared files,
// container or instance role), never from the URL. If the server refuses them, the shared files are
// read again, so renewed credentials need no restart. Other parameters and repeated ones are
// errors. Errors wrap leaderelection.ErrPermanent if no retry can help. Without verify Open makes
// no request to S3.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, verify, err := open(ctx, u)
	if err == nil && verify {
		err = d.VerifyConditionalWrites(ctx)
	}
	if err != nil {
		return nil, store.NotOpened("s3", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (d *Decider, verify bool, err error) {
	in, err := awsurl.Parse(u, "s3", "bucket")
	if err != nil {
		return nil, false, store.WrongURL(err)
	}
	o := &Options{
		ServerSideEncryption: types.ServerSideEncryption(in.String("sse")),
		SSEKMSKeyID:          in.String("sse_kms_key_id"),
		Metadata:             in.Pairs("metadata"),
		ExpectedBucketOwner:  in.String("bucket_owner"),
		ChecksumAlgorithm:    types.ChecksumAlgorithm(in.String("checksum")),
		OpaqueETags:          in.Bool("opaque_etags"),
		UnquotedETag:         in.Bool("unquoted_etag"),
	}
	pathStyle := in.Bool("path_style")
	verify = in.Bool("verify")
	region, profile, endpoint, err := in.Where()
	if err != nil {
		return nil, false, err
	}
	// The SDK would write to the standard error. That says nothing that the election
	// needs, and is not for its caller to read.
	load := func(ctx context.Context) (aws.Config, error) {
		return config.LoadDefaultConfig(ctx, config.WithRegion(region), config.WithSharedConfigProfile(profile), config.WithLogger(logging.Nop{}),
			config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(web.OneCall)))
	}
	cfg, err := load(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	credentials := awsurl.Credentials[aws.Credentials]{Renewed: store.NewRenewed(awsurl.Chain[aws.Credentials](cfg.Credentials), func(ctx context.Context) (awsurl.Chain[aws.Credentials], error) {
		cfg, err := load(ctx)
		return cfg.Credentials, err
	})}
	cfg.Credentials = credentials
	idle := func() {}
	if b, is := cfg.HTTPClient.(*awshttp.BuildableClient); is {
		t := b.GetTransport() // a copy: that of b itself cannot be reached
		cfg.HTTPClient, idle = web.Client(t), t.CloseIdleConnections
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = pathStyle
		if endpoint != nil {
			o.BaseEndpoint = endpoint
		}
	})
	d = NewDecider(client, in.Name, in.Key, o)
	d.b.distrusted, d.close = credentials.Distrust, idle
	d.election.Drop = func(time.Time) { idle() }
	if wrong := d.election.Wrong; wrong != nil {
		return nil, false, store.WrongURL(wrong)
	}
	return d, verify, nil
}

// Options says how to write the object, and how the server differs from Amazon's. The zero value is
// right for Amazon and for most servers.
type Options struct {
	// ServerSideEncryption and SSEKMSKeyID are those of each PutObject, for a bucket whose
	// policy refuses writes without them. Empty: as the bucket has it, which is best for most.
	ServerSideEncryption types.ServerSideEncryption
	SSEKMSKeyID          string
	// Metadata is metadata of the object, for people: names of letters, digits, "-", "_" and
	// ".", values in printable ASCII, 2 KB in all.
	Metadata map[string]string
	// ExpectedBucketOwner is the account that must own the bucket: a bucket of
	// that name in another account is refused with 403. Empty: any.
	ExpectedBucketOwner string
	// ChecksumAlgorithm makes the SDK add a checksum of this kind to each upload. Empty:
	// uploads have a Content-MD5, which each server knows, and which Object Lock accepts.
	// Directory buckets do not know it, so uploads to them have none.
	ChecksumAlgorithm types.ChecksumAlgorithm
	// OpaqueETags says that this server's ETags are not meant to be the MD5 of the content.
	// Without it they must be, as with Amazon and most servers, so that a response that was
	// changed on its way is noticed. You need not set it for directory buckets or SSE-KMS: the
	// Decider recognizes these.
	OpaqueETags bool
	// UnquotedETag sends If-Match without quotes around the ETag, for servers
	// that compare it as a bare string. Amazon, MinIO and R2 take it in quotes.
	UnquotedETag bool
}

func (o *Options) clone() Options {
	c := *o
	c.Metadata = maps.Clone(o.Metadata)
	return c
}

// checkMetadata says what no server would take.
func checkMetadata(metadata map[string]string) error {
	size := 0
	for name, value := range metadata {
		size += len(name) + len(value)
		token := strings.ContainsFunc(name, func(r rune) bool {
			return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r))
		})
		switch {
		case name == "" || token:
			return fmt.Errorf("the Metadata has the name %q: it may have letters, digits, '-', '_' and '.' only", name)
		case strings.TrimSpace(value) != value || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			return fmt.Errorf("the Metadata %q is %q: it may have printable ASCII only, and no blank at either end", name, value)
		}
	}
	if size > 2<<10 {
		return fmt.Errorf("the Metadata has %d bytes: S3 takes 2048", size)
	}
	return nil
}

// given is nil for what is left out.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It reads the record, and looks whether a lifecycle
// rule will delete it, and whether replication has written it or copies it. It needs only the
// permission to read.
func (d *Decider) Durability(ctx context.Context) (warnings []durability.Warning, err error) {
	if isDirectory(d.b.bucket) {
		warnings = append(warnings, durability.Warning{
			Detail: "a directory bucket keeps the record in one zone: if the zone is lost, the count is, too",
			Advice: "use a general purpose bucket if something is fenced by its numbers",
		})
	}
	var out *s3.GetObjectOutput
	if err = d.election.Ready(ctx); err == nil {
		out, err = d.b.ask(ctx, d.b.key)
	}
	switch {
	case answers.Missing(err):
		err = errors.New("lifecycle rules and replication are not known, since there is no record yet: ask again after somebody has led")
		fallthrough
	case err != nil:
		return warnings, d.election.Failed(ctx, "examining", err)
	}
	_ = out.Body.Close()
	return append(warnings, examine(out)...), nil
}

// examine says what an answer tells of the bucket.
func examine(out *s3.GetObjectOutput) (warnings []durability.Warning) {
	if when := aws.ToString(out.Expiration); when != "" {
		warnings = append(warnings, durability.Warning{
			Detail: "a lifecycle rule deletes the record, and its count, if nobody leads until then: " + when,
			Advice: "limit the rule to other keys",
		})
	}
	switch out.ReplicationStatus {
	case "":
	case types.ReplicationStatusReplica:
		warnings = append(warnings, durability.Warning{
			Detail: "replication has written this record: it is a copy from another bucket, whose candidates lead as well, and replication ignores conditions",
			Advice: "have all candidates name one and the same bucket, and no rule replicate into it",
		})
	default:
		warnings = append(warnings, durability.Warning{
			Detail: "the record is replicated to another bucket, and the copy lags behind (x-amz-replication-status " + string(out.ReplicationStatus) + ")",
			Advice: "start no candidate on the copy; after a fail-over to it, reset the record there when all candidates here have been stopped for a term",
		})
	}
	return warnings
}
