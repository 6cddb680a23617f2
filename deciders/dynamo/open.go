package dynamo

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/logging"

	"github.com/c8e606e4/leaderelection/deciders/internal/awsurl"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/web"
)

// Open returns a decider for an election given as a URL:
//
//	dynamodb://TABLE/KEY?region=eu-central-1
//
// KEY may have slashes, and characters escaped as in any URL. The parameters,
// all optional:
//
//	table          the table's ARN in place of TABLE, for another account's table:
//	               dynamodb:///KEY?table=arn:aws:dynamodb:eu-central-1:123456789012:table/NAME
//	region         the region; else the ARN's, else as the environment says
//	endpoint       the URL of another server, as http://127.0.0.1:8000 for DynamoDB Local
//	profile        a profile of the shared AWS configuration
//	partition_key  Options.PartitionKey
//	sort_key       Options.SortKey
//	sort_value     Options.SortValue
//	create         true: Options.CreateTable
//	verify         true: VerifyTable must find nothing
//
// Credentials come from the SDK's usual chain (environment, shared files,
// container or instance role), never from the URL. If the server refuses them, the shared files are
// read again, so renewed credentials need no restart. Other parameters and repeated ones are
// errors. Errors wrap leaderelection.ErrPermanent if no retry can help. Without verify Open makes
// no request to DynamoDB.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, verify, err := open(ctx, u)
	if err == nil && verify {
		err = d.VerifyTable(ctx)
	}
	if err != nil {
		return nil, store.NotOpened("dynamo", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (d *Decider, verify bool, err error) {
	in, err := awsurl.Parse(u, "dynamodb", "table")
	if err != nil {
		return nil, false, store.WrongURL(err)
	}
	o := &Options{
		PartitionKey: in.String("partition_key"),
		SortKey:      in.String("sort_key"),
		SortValue:    in.String("sort_value"),
		CreateTable:  in.Bool("create"),
	}
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
	client := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
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
