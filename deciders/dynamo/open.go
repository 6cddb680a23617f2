package dynamo

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/c8e606e4/leaderelection"
)

// Open returns a decider for an election given as a URL, for programs that take
// it from a flag or the environment:
//
//	dynamodb://TABLE/KEY?region=eu-central-1
//
// KEY may have slashes, and characters escaped as in any URL. The parameters,
// all optional:
//
//	region         the region; else as the environment says
//	endpoint       the URL of another server, as http://127.0.0.1:8000 for DynamoDB Local
//	profile        a profile of the shared AWS configuration
//	partition_key  Options.PartitionKey
//	sort_key       Options.SortKey
//	sort_value     Options.SortValue
//	create         true: Options.CreateTable
//	verify         true: call VerifyTable before Open returns
//
// Credentials come from the SDK's usual chain (environment, shared files,
// container or instance role), never from the URL. Any other parameter, and one
// given twice, is an error. Errors wrap leaderelection.ErrPermanent where no
// retry can help; without verify no request is made to DynamoDB.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, verify, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("leaderelection/dynamo: opening %s: %w", u.Redacted(), err)
	}
	if verify {
		if err := d.VerifyTable(ctx); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (d *Decider, verify bool, err error) {
	switch {
	case u.Scheme != "dynamodb":
		return nil, false, permanent("the scheme is %q, and must be dynamodb", u.Scheme)
	case u.User != nil:
		return nil, false, permanent("credentials do not belong in the URL: they come from the environment")
	case u.Fragment != "":
		return nil, false, permanent("a '#' in the key must be written %%23")
	}
	q, err := parameters(u)
	if err != nil {
		return nil, false, err
	}
	var load []func(*config.LoadOptions) error
	if v := q.take("region"); v != "" {
		load = append(load, config.WithRegion(v))
	}
	if v := q.take("profile"); v != "" {
		load = append(load, config.WithSharedConfigProfile(v))
	}
	endpoint := q.take("endpoint")
	o := &Options{PartitionKey: q.take("partition_key"), SortKey: q.take("sort_key"), SortValue: q.take("sort_value"), CreateTable: q.takeBool("create")}
	verify = q.takeBool("verify")
	if err := q.rest(); err != nil {
		return nil, false, err
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, false, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	client := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		if endpoint != "" {
			o.BaseEndpoint = aws.String(endpoint)
		}
	})
	d = NewDecider(client, u.Host, strings.TrimPrefix(u.Path, "/"), o)
	return d, verify, d.wrong
}

// query is the parameters of a URL that have not been taken yet.
type query struct {
	values url.Values
	err    error
}

func parameters(u *url.URL) (*query, error) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, leaderelection.ErrPermanent)
	}
	for name, v := range values {
		if len(v) > 1 {
			return nil, permanent("the parameter %q is given %d times", name, len(v))
		}
	}
	return &query{values: values}, nil
}

func (q *query) take(name string) string {
	v := q.values.Get(name)
	delete(q.values, name)
	return v
}

func (q *query) takeBool(name string) bool {
	v := q.take(name)
	if v == "" {
		return false
	}
	b, err := strconv.ParseBool(v)
	if err != nil && q.err == nil {
		q.err = permanent("the parameter %q is %q, and must be true or false", name, v)
	}
	return b
}

// rest says what is wrong with the parameters taken, or that there are others.
func (q *query) rest() error {
	if q.err != nil {
		return q.err
	}
	for name := range q.values {
		return permanent("there is no parameter %q", name)
	}
	return nil
}
