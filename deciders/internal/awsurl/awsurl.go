// Package awsurl takes apart the URLs by which the stores of AWS are opened,
// and loads the SDK's configuration for them.
package awsurl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// URL is a store's URL, taken apart. Take each parameter, then call Rest.
type URL struct {
	// Host is the table or bucket.
	Host string
	// Key is the path, unescaped, without the slash at its beginning.
	Key string

	*store.Params
}

// Parse takes u apart, which must have this scheme, no credentials and no fragment.
func Parse(u *url.URL, scheme string) (*URL, error) {
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
	return &URL{Host: u.Host, Key: strings.TrimPrefix(u.Path, "/"), Params: p}, nil
}

// Load takes the parameters region, profile and endpoint, checks by Rest that
// there is none left, and loads the SDK's configuration: credentials come from
// its usual chain. The endpoint, nil where none is given, is for the client's
// BaseEndpoint; in the configuration the environment would override it.
func (u *URL) Load(ctx context.Context) (cfg aws.Config, endpoint *string, err error) {
	var load []func(*config.LoadOptions) error
	if v := u.String("region"); v != "" {
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
