package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/c8e606e4/leaderelection/deciders/azblob/azlease"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/web"
)

// Open makes a client and returns a Decider that uses it. The URL is
//
//	azblob://account/container/blob?parameter=value&...
//
// The blob's name may have slashes. Percent-encode what a URL cannot hold. All parameters are
// optional. Unknown parameters are errors, and so are repeated ones unless the list allows it:
//
//	create            true: Options.CreateContainer
//	native_lease      true, or a duration such as 30s: Options.Leases
//	companion         one blob of azlease.Options.Companions; may be given several times
//	create_companions true: azlease.Options.CreateCompanions
//	encryption_scope  Options.EncryptionScope
//	endpoint          the URL of the account's blob service, for other clouds, custom
//	                  domains and emulators, such as http://127.0.0.1:10000/account;
//	                  without it https://account.blob.core.windows.net
//
// Credentials come from variables of the az command. Open uses the first that is set:
//
//   - AZURE_STORAGE_KEY, the account's key;
//   - AZURE_STORAGE_SAS_TOKEN, a shared access signature;
//   - AZURE_STORAGE_CONNECTION_STRING, either of them and the endpoint, for the URL's account.
//
// If none is set, they are those of azidentity.NewDefaultAzureCredential (environment, workload
// identity, managed identity, az login and others). If these give no token, their files are read
// again, so a renewed certificate needs no restart. Open makes no request: the Decider's first call
// shows whether the store can be used.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, err := open(u)
	if err != nil {
		return nil, store.OpenError("azblob", u, err)
	}
	return d, nil
}

func open(u *url.URL) (*Decider, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	t.transport = web.NewTransport()
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	d := NewDecider(client, t.container, t.blob, &t.opts)
	d.close = t.transport.CloseIdleConnections
	d.election.Drop = func(time.Time) { d.close() }
	return d, d.election.Wrong
}

// target is what a URL says.
type target struct {
	account, container, blob string
	opts                     Options
	endpoint                 string
	transport                *http.Transport
}

// client makes one with the credentials of the environment.
func (t *target) client() (*azblob.Client, error) {
	service := t.endpoint
	if service == "" {
		service = "https://" + t.account + ".blob.core.windows.net/"
	}
	if key := os.Getenv("AZURE_STORAGE_KEY"); key != "" {
		c, err := azblob.NewSharedKeyCredential(t.account, key)
		if err != nil {
			return nil, errors.New("AZURE_STORAGE_KEY is not a storage account's key: want base64") // err might show it
		}
		return azblob.NewClientWithSharedKeyCredential(service, c, t.options())
	}
	if sas := os.Getenv("AZURE_STORAGE_SAS_TOKEN"); sas != "" {
		return azblob.NewClientWithNoCredential(service+"?"+strings.TrimPrefix(sas, "?"), t.options())
	}
	if all := os.Getenv(connectionString); all != "" {
		return t.connect(all)
	}
	identify := func(context.Context) (azcore.TokenCredential, error) {
		return azidentity.NewDefaultAzureCredential(nil)
	}
	c, err := identify(context.Background())
	if err != nil {
		return nil, err
	}
	return azblob.NewClient(service, identity{store.NewRenewed(c, identify)}, t.options())
}

// identity is a credential that reads a certificate's file once. It is made again after it has failed.
type identity struct {
	*store.Renewed[azcore.TokenCredential]
}

// GetToken implements azcore.TokenCredential.
func (i identity) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := i.Get(ctx).GetToken(ctx, o)
	if err != nil {
		i.Distrust()
	}
	return token, err
}

// options are those of a client with a transport of our own: that of the SDK uses HTTP/2.
func (t *target) options() *azblob.ClientOptions {
	return &azblob.ClientOptions{ClientOptions: policy.ClientOptions{Transport: &http.Client{Transport: t.transport}}}
}

const connectionString = "AZURE_STORAGE_CONNECTION_STRING"

// connect makes a client by a connection string, which has secrets: errors show
// nothing of it but the account.
func (t *target) connect(all string) (*azblob.Client, error) {
	c, err := azblob.NewClientFromConnectionString(all, t.options())
	if err != nil {
		return nil, errors.New(connectionString + " is not one: it needs AccountName=...;AccountKey=... or BlobEndpoint=...;SharedAccessSignature=... in it")
	}
	account := ""
	if host, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(c.URL(), "https://"), "http://"), ".blob."); ok {
		account = host
	}
	for field := range strings.SplitSeq(all, ";") {
		if name, ok := strings.CutPrefix(field, "AccountName="); ok {
			account = name
		}
	}
	switch {
	case account != "" && account != t.account:
		return nil, fmt.Errorf("%s is for the account %q, and the URL names %q: correct one of them, or unset the variable", connectionString, account, t.account)
	case t.endpoint != "":
		return nil, errors.New(connectionString + " and the parameter endpoint both say where the service is: leave one of them out")
	}
	return c, nil
}

func parse(u *url.URL) (*target, error) {
	form := errors.New("want azblob://account/container/blob?parameter=value")
	switch {
	case u.Scheme != "azblob":
		return nil, fmt.Errorf("the scheme is %q, want azblob", u.Scheme)
	case u.User != nil || u.Port() != "" || u.Opaque != "" || u.Host == "" || strings.ContainsAny(u.Host, "."):
		return nil, form
	}
	t := &target{account: u.Host}
	var found bool
	if t.container, t.blob, found = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/"); !found {
		return nil, form
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	t.opts = Options{
		CreateContainer: p.Bool("create"),
		EncryptionScope: p.String("encryption_scope"),
	}
	if e := p.Endpoint("endpoint"); e != nil {
		if e.RawQuery != "" {
			p.Wrong("credentials do not belong in the parameter %q: they come from the environment", "endpoint")
		}
		t.endpoint = e.String()
	}
	leases := azlease.Options{Companions: p.Strings("companion"), CreateCompanions: p.Bool("create_companions")}
	if on := nativeLease(p, &leases.Duration); on {
		t.opts.Leases = azlease.New(&leases)
	} else if len(leases.Companions) > 0 || leases.CreateCompanions {
		p.Wrong("companion and create_companions are for native leases: give native_lease=true as well")
	}
	return t, p.Rest()
}

// nativeLease reports whether leases are asked for, and for how long if that is said.
func nativeLease(p *store.Params, length *time.Duration) bool {
	v := p.String("native_lease")
	if on, err := strconv.ParseBool(v); err == nil || v == "" {
		return on
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		p.Wrong("the parameter %q is %q; want true, false or a duration such as 30s", "native_lease", v)
	}
	*length = d
	return true
}
