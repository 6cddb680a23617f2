// Package awsurl takes apart the URLs by which the stores of AWS are opened.
package awsurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

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

// Parse takes u apart. U must have this scheme, and no credentials or fragment. The name is u's
// host, or the ARN in the parameter, since a host cannot be an ARN.
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
	at := strings.SplitN(named, ":", 6) // arn, partition, service, region, account, resource
	isARN := len(at) == 6 && at[0] == "arn"
	switch {
	case u.Host != "":
		p.Wrong("the URL names %q, and the parameter %q names %q: leave one of them out (%s:///KEY?%s=ARN)", u.Host, parameter, named, scheme, parameter)
	case !isARN || at[2] != scheme:
		p.Wrong("the parameter %q is %q; want an ARN such as arn:aws:%s:REGION:ACCOUNT:... (a plain name goes before the key: %s://NAME/KEY)", parameter, named, scheme, scheme)
	}
	in.Name = named
	if isARN {
		in.region = at[3]
	}
	return in, nil
}

// Where takes the parameters of the SDK's configuration: region (or an ARN's) and profile and
// endpoint. It checks by Rest that there are no others. What is not given is empty. Use the
// endpoint (nil if not given) as the client's BaseEndpoint: in the configuration the environment
// would override it.
func (u *URL) Where() (region, profile string, endpoint *string, err error) {
	region, profile = cmp.Or(u.String("region"), u.region), u.String("profile")
	if e := u.Endpoint("endpoint"); e != nil {
		at := e.String()
		endpoint = &at
	}
	if err := u.Rest(); err != nil {
		return "", "", nil, store.WrongURL(err)
	}
	return region, profile, endpoint, nil
}

// Chain is where the SDK finds credentials: an aws.CredentialsProvider, for C its aws.Credentials. This
// package does not import the SDK.
type Chain[C any] interface {
	Retrieve(context.Context) (C, error)
}

// Credentials are those of the SDK's chain. The chain reads the shared files once, so it is made again
// after it has failed, and after Distrust, which is for each refusal of the server.
type Credentials[C any] struct{ *store.Renewed[Chain[C]] }

// Retrieve implements Chain.
func (c Credentials[C]) Retrieve(ctx context.Context) (C, error) {
	found, err := c.Get(ctx).Retrieve(ctx)
	if err != nil {
		c.Distrust()
	}
	return found, err
}
