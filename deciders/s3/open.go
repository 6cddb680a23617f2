package s3

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"

	"github.com/c8e606e4/leaderelection/deciders/internal/awsurl"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/web"
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
