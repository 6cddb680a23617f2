package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/web"
)

// Open makes a client and returns a Decider that owns it: Close it. The URL is
//
//	gs://bucket/object?parameter=value&...
//
// The object's name may have slashes. Percent-encode what a URL cannot hold. All parameters are
// optional. Unknown parameters are errors, and so are repeated ones unless the list allows it:
//
//	kms_key         Options.KMSKeyName
//	endpoint        where the service is, for emulators and private access, as
//	                http://host:port (without a path, /storage/v1/ is added)
//	anonymous       true: send no credentials
//
// Credentials are Google's application default ones: the file that
// GOOGLE_APPLICATION_CREDENTIALS names, gcloud's login, or the machine's service account. If the
// store refuses them, the file is read again, so a renewed key needs no restart. The client has
// ctx's values but outlives ctx. Open makes no request: the Decider's first call shows whether the
// store can be used.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	t, err := parse(u)
	if err == nil {
		err = checkNames(t.bucket, t.object)
	}
	if err != nil {
		return nil, store.OpenError("gcs", u, err)
	}
	var with []option.ClientOption
	if t.endpoint != "" {
		with = append(with, option.WithEndpoint(t.endpoint), storage.WithJSONReads())
	}
	if t.anonymous {
		with = append(with, option.WithoutAuthentication())
	}
	transport := web.NewTransport()
	connect := func(ctx context.Context) (*storage.Client, error) {
		return newClient(context.WithoutCancel(ctx), transport, with)
	}
	client, err := connect(ctx)
	if err != nil {
		return nil, store.NotOpened("gcs", u, fmt.Errorf("making a client: %w", err))
	}
	d := NewDecider(client, t.bucket, t.object, &t.opts)
	d.owned = store.NewRenewed(client, connect)
	b := d.election.Store.(*backend)
	b.client, b.distrusted, d.election.Drop = d.owned.Get, d.owned.Distrust, func(time.Time) { transport.CloseIdleConnections() }
	if t.endpoint != "" {
		d.election.Never = &never
	}
	return d, nil
}

// newClient is storage.NewClient with a transport of our own: that of the SDK uses HTTP/2, and
// cannot be adjusted.
func newClient(ctx context.Context, t *http.Transport, with []option.ClientOption) (*storage.Client, error) {
	auth := []option.ClientOption{option.WithScopes(storage.ScopeFullControl, "https://www.googleapis.com/auth/cloud-platform")} // as there
	if os.Getenv("STORAGE_EMULATOR_HOST") != "" {
		auth = append(auth, option.WithoutAuthentication()) // as there
	}
	way, err := htransport.NewTransport(ctx, t, append(auth, with...)...)
	if err != nil {
		return nil, err
	}
	return storage.NewClient(ctx, append(with, option.WithHTTPClient(&http.Client{Transport: way}))...)
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
	case u.User != nil || u.Port() != "" || u.Opaque != "":
		return nil, errors.New("want gs://bucket/object?parameter=value")
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	t := &target{bucket: u.Host, object: strings.TrimPrefix(u.Path, "/"), anonymous: p.Bool("anonymous"), opts: Options{
		KMSKeyName: p.String("kms_key"),
	}}
	if e := p.Endpoint("endpoint"); e != nil {
		if e.Path == "" || e.Path == "/" {
			e.Path = "/storage/v1/"
		}
		t.endpoint = e.String()
	}
	return t, p.Rest()
}
