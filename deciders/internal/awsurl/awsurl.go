// Package awsurl takes apart the URLs by which the stores of AWS are opened,
// and loads the SDK's configuration for them.
package awsurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// URL is a store's URL, taken apart. Take each parameter, then call Rest.
type URL struct {
	// Name is the table or bucket: a name, or an ARN.
	Name string
	// Key is the path, unescaped, without the slash at its beginning.
	Key string

	region string // the ARN's

	*store.Params
}

// Parse takes u apart, which must have this scheme, no credentials and no fragment. The
// name is u's host, or what the parameter says: an ARN, which no host can be.
func Parse(u *url.URL, scheme, parameter string) (*URL, error) {
	switch {
	case u.Scheme != scheme:
		return nil, fmt.Errorf("the scheme is %q, and must be %s", u.Scheme, scheme)
	case u.User != nil:
		return nil, errors.New("credentials do not belong in the URL: they come from the environment")
	case u.Opaque != "":
		return nil, fmt.Errorf("it must begin with %s://", scheme)
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	in := &URL{Name: u.Host, Key: strings.TrimPrefix(u.Path, "/"), Params: p}
	named := p.String(parameter)
	if named == "" {
		return in, nil
	}
	at, err := arn.Parse(named)
	switch {
	case u.Host != "":
		p.Wrong("the URL names %q, and the parameter %q names %q: leave one of them out (%s:///KEY?%s=ARN)", u.Host, parameter, named, scheme, parameter)
	case err != nil || at.Service != scheme:
		p.Wrong("the parameter %q is %q; want an ARN such as arn:aws:%s:REGION:ACCOUNT:... (a plain name goes before the key: %s://NAME/KEY)", parameter, named, scheme, scheme)
	}
	in.Name, in.region = named, at.Region
	return in, nil
}

// Load takes the parameters region (else an ARN's), profile and endpoint, checks by Rest that
// there is none left, and loads the SDK's configuration: credentials come from
// its usual chain. The endpoint, nil where none is given, is for the client's
// BaseEndpoint; in the configuration the environment would override it.
func (u *URL) Load(ctx context.Context) (cfg aws.Config, endpoint *string, err error) {
	var load []func(*config.LoadOptions) error
	if v := cmp.Or(u.String("region"), u.region); v != "" {
		load = append(load, config.WithRegion(v))
	}
	if v := u.String("profile"); v != "" {
		load = append(load, config.WithSharedConfigProfile(v))
	}
	if e := u.Endpoint("endpoint"); e != nil {
		at := e.String()
		endpoint = &at
	}
	if err := u.Rest(); err != nil {
		return cfg, nil, store.Wrong("%w", err)
	}
	// What the SDK would write to the standard error says nothing that the election
	// needs, and is not its caller's to read.
	load = append(load, config.WithLogger(logging.Nop{}))
	cfg, err = config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return cfg, nil, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	return cfg, endpoint, nil
}
