package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Open returns the election that u names, with a client of its own, which Close ends:
//
//	kubernetes://namespace/name     the Lease of that namespace and name
//	kubernetes:///name              in the namespace of the pod, or of the kubeconfig's context
//
// Query parameters, both optional:
//
//	kubeconfig=FILE   instead of $KUBECONFIG or ~/.kube/config
//	context=NAME      instead of the kubeconfig's current context
//
// As with kubectl, a kubeconfig comes first, and a pod without one uses its service account, whose
// token is read again when it is renewed. Certificates, authorities and the kubeconfig are read
// again when the API server, or the client, rejects what they said before. The client does not
// limit requests a second: a campaign does. Other parameters are errors. Open reads files, and does
// no network I/O.
func Open(_ context.Context, u *url.URL) (*Decider, error) {
	d, err := openURL(u)
	if err != nil {
		return nil, store.OpenError("kubernetes", u, err)
	}
	return d, nil
}

func openURL(u *url.URL) (*Decider, error) {
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.String("kubeconfig")
	overrides := &clientcmd.ConfigOverrides{CurrentContext: p.String("context")}
	if err := p.Rest(); err != nil {
		return nil, err
	}
	namespace, name := u.Host, strings.TrimPrefix(u.Path, "/")
	switch {
	case u.Scheme != "kubernetes":
		return nil, fmt.Errorf("the scheme is %q; want kubernetes://namespace/name", u.Scheme)
	case u.User != nil:
		return nil, errors.New("credentials do not belong in the URL: they come from the kubeconfig or the pod")
	case name == "":
		return nil, errors.New("no Lease is named: write kubernetes://namespace/name, or kubernetes:///name for a Lease in the namespace of the pod or of the kubeconfig")
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, err
		}
	}
	if err := checkNames(namespace, name); err != nil {
		return nil, err
	}
	// A kubeconfig is read once, and once more each time that what it says is distrusted.
	renewed := func() (*rest.Config, error) {
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	}
	return newOwn(renewed, namespace, name)
}

// own is the client that Open makes. Certificates, authorities and tokens are renewed in
// their files: after an error that renewed ones may cure, the next call reads the files
// again. By itself client-go looks at an authority's file every five minutes, and at a
// kubeconfig never.
type own struct {
	*rest.RESTClient
	http *http.Client
}

// close closes the connections that nobody uses.
func (o own) close() { utilnet.CloseIdleConnectionsFor(o.http.Transport) }

// newOwn is NewDecider with a client of its own.
func newOwn(config func() (*rest.Config, error), namespace, name string) (*Decider, error) {
	first, err := connect(config)
	if err != nil {
		return nil, err
	}
	before := first
	latest := store.NewRenewed(first, func(context.Context) (own, error) {
		next, err := connect(config)
		if err == nil {
			before.close()
			before = next
		}
		return next, err
	})
	current := func() own { return latest.Get(context.Background()) }
	d := NewDecider(first.RESTClient, namespace, name, nil)
	d.b.client, d.b.distrusted, d.close = func() rest.Interface { return current().RESTClient }, latest.Distrust, func() { current().close() }
	d.election.Drop = func(time.Time) { d.close() }
	return d, nil
}

// connect makes the client, of what the files say now.
func connect(config func() (*rest.Config, error)) (own, error) {
	cfg, err := config()
	if err != nil {
		return own{}, fmt.Errorf("there is no usable kubeconfig, nor a pod's service account: %w", err)
	}
	if cfg.CAFile != "" && len(cfg.CAData) == 0 { // by its name client-go would take the transport that it has
		if cfg.CAData, err = os.ReadFile(cfg.CAFile); err != nil {
			return own{}, err
		}
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status
	cfg.GroupVersion, cfg.APIPath = &coordinationv1.SchemeGroupVersion, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.NextProtos = []string{"http/1.1"} // a call that is given up closes its connection, see package web
	cfg.QPS, cfg.UserAgent, cfg.WarningHandler = -1, "leaderelection", rest.NoWarnings{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return inSeconds{next} })
	web, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return own{}, err
	}
	client, err := rest.RESTClientForConfigAndClient(cfg, web)
	return own{client, web}, err
}

// inSeconds puts each Retry-After in whole seconds. Client-go understands nothing else, no dates and
// no fractions, and its errors do not have the header.
type inSeconds struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s inSeconds) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := s.RoundTripper.RoundTrip(r)
	if err == nil {
		if after := store.RetryAfter(a.Header.Get("Retry-After")); after > 0 {
			a.Header.Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
		}
	}
	return a, err
}

// WrappedRoundTripper lets the connections be found that are to be closed.
func (s inSeconds) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }
