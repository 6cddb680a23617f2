// Package awsurl takes apart the URLs by which the stores of AWS are opened,
// and loads the SDK's configuration for them.
package awsurl

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/c8e606e4/leaderelection"
)

// URL is a store's URL, taken apart. Take each parameter, then call Rest.
type URL struct {
	// Host is the table or bucket.
	Host string
	// Key is the path, unescaped, without the slash at its beginning.
	Key string

	values url.Values
	err    error // the first parameter that was wrong
}

// Parse takes u apart, which must have this scheme, no credentials, no fragment,
// and no parameter twice. Errors here and below wrap leaderelection.ErrPermanent.
func Parse(u *url.URL, scheme string) (*URL, error) {
	switch {
	case u.Scheme != scheme:
		return nil, permanent("the scheme is %q, and must be %s", u.Scheme, scheme)
	case u.User != nil:
		return nil, permanent("credentials do not belong in the URL: they come from the environment")
	case u.Opaque != "":
		return nil, permanent("it must begin with %s://", scheme)
	case u.Fragment != "":
		return nil, permanent("a '#' in the key must be written %%23")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, permanent("%w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if n := len(values[name]); n > 1 {
			return nil, permanent("the parameter %q is given %d times", name, n)
		}
	}
	return &URL{Host: u.Host, Key: strings.TrimPrefix(u.Path, "/"), values: values}, nil
}

// String takes a parameter; empty where it is not given.
func (u *URL) String(name string) string {
	v := u.values.Get(name)
	u.values.Del(name)
	return v
}

// Bool takes a parameter that is true or false; false where it is not given.
func (u *URL) Bool(name string) bool {
	v := u.String(name)
	if v == "" {
		return false
	}
	b, err := strconv.ParseBool(v)
	if err != nil && u.err == nil {
		u.err = permanent("the parameter %q is %q, and must be true or false", name, v)
	}
	return b
}

// Rest says what was wrong with the parameters taken, or that there are others.
func (u *URL) Rest() error {
	if u.err != nil {
		return u.err
	}
	for _, name := range slices.Sorted(maps.Keys(u.values)) {
		return permanent("there is no parameter %q", name)
	}
	return nil
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
	if v := u.String("endpoint"); v != "" {
		endpoint = &v
		if e, err := url.Parse(v); u.err == nil && err == nil && e.User != nil {
			u.err = permanent("credentials do not belong in the parameter %q: they come from the environment", "endpoint")
		} else if u.err == nil && (err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https") {
			u.err = permanent("the parameter %q is %q, and must be a URL as http://127.0.0.1:8000", "endpoint", v)
		}
	}
	if err := u.Rest(); err != nil {
		return cfg, nil, err
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

func permanent(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), leaderelection.ErrPermanent)
}
