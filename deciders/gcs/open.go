package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/redact"
)

// Open makes a client and returns a Decider that owns it: Close it. The URL is
//
//	gs://bucket/object?parameter=value&...
//
// The object may have slashes; what a URL cannot hold is percent-encoded. An
// unknown parameter, and one given twice that may be given once, is an error;
// each is optional:
//
//	predefined_acl  Options.PredefinedACL
//	acl             one rule of Options.ACL, as entity:ROLE, for instance
//	                user-ann@example.com:READER; may be given several times
//	kms_key         Options.KMSKeyName
//	content_type    Options.ContentType
//	cache_control   Options.CacheControl
//	metadata        one key=value of Options.Metadata; may be given several times
//	user_project    Options.UserProject
//	endpoint        where the service is, for emulators and private access, as
//	                http://host:port (the path /storage/v1/ is added where there is none)
//	anonymous       true: send no credentials
//
// Credentials are Google's application default ones: the file that
// GOOGLE_APPLICATION_CREDENTIALS names, gcloud's login, or the service account of
// the machine. The client is made with ctx's values but outlives it. Open makes
// no request of the store; whether it can be used is said by the first call of
// the Decider.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	t, err := parse(u)
	if err == nil {
		err = checkNames(t.bucket, t.object)
	}
	if err != nil {
		return nil, fmt.Errorf("leaderelection/gcs: opening %s: %w: %w", redact.URL(u.String()), leaderelection.ErrPermanent, redact.Error(err, u.String()))
	}
	var with []option.ClientOption
	if t.endpoint != "" {
		with = append(with, option.WithEndpoint(t.endpoint), storage.WithJSONReads())
	}
	if t.anonymous {
		with = append(with, option.WithoutAuthentication())
	}
	client, err := storage.NewClient(context.WithoutCancel(ctx), with...)
	if err != nil {
		return nil, fmt.Errorf("leaderelection/gcs: opening %s: making a client: %w", redact.URL(u.String()), redact.Error(err, u.String()))
	}
	d := NewDecider(client, t.bucket, t.object, &t.opts)
	d.owned = client
	return d, nil
}

// target is what a URL says.
type target struct {
	bucket, object string
	opts           Options
	endpoint       string
	anonymous      bool
}

func parse(u *url.URL) (*target, error) {
	switch {
	case u.Scheme != "gs":
		return nil, fmt.Errorf("the scheme is %q, want gs", u.Scheme)
	case u.User != nil || u.Port() != "" || u.Fragment != "" || u.Opaque != "":
		return nil, errors.New("want gs://bucket/object?parameter=value")
	}
	t := &target{bucket: u.Host, object: strings.TrimPrefix(u.Path, "/")}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	for name, values := range query {
		if len(values) > 1 && name != "acl" && name != "metadata" {
			return nil, fmt.Errorf("parameter %q is given twice", name)
		}
		for _, v := range values {
			if err := t.set(name, v); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// set takes in one parameter.
func (t *target) set(name, value string) (err error) {
	switch o := &t.opts; name {
	case "predefined_acl":
		o.PredefinedACL = value
	case "acl":
		// The role has no colon; an entity might.
		i := strings.LastIndexByte(value, ':')
		if i <= 0 || i == len(value)-1 {
			return fmt.Errorf("acl is %q, want entity:ROLE", value)
		}
		o.ACL = append(o.ACL, storage.ACLRule{Entity: storage.ACLEntity(value[:i]), Role: storage.ACLRole(value[i+1:])})
	case "kms_key":
		o.KMSKeyName = value
	case "content_type":
		o.ContentType = value
	case "cache_control":
		o.CacheControl = value
	case "metadata":
		key, v, found := strings.Cut(value, "=")
		if !found || key == "" {
			return fmt.Errorf("metadata is %q, want key=value", value)
		}
		if o.Metadata == nil {
			o.Metadata = make(map[string]string)
		}
		o.Metadata[key] = v
	case "user_project":
		o.UserProject = value
	case "endpoint":
		t.endpoint, err = endpoint(value)
	case "anonymous":
		if t.anonymous, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("anonymous is %q, want true or false", value)
		}
	default:
		return fmt.Errorf("parameter %q is unknown", name)
	}
	return err
}

func endpoint(value string) (string, error) {
	e, err := url.Parse(value)
	if err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https" {
		return "", fmt.Errorf("endpoint is %q, want http://host:port", value)
	}
	if e.Path == "" || e.Path == "/" {
		e.Path = "/storage/v1/"
	}
	return e.String(), nil
}
