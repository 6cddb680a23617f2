package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

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
// As with kubectl, a kubeconfig comes first, and a pod that has none uses its service
// account, whose token is read anew when it is renewed. The client bears no limit of
// requests a second of its own: a campaign keeps one. Any other parameter is an error, and
// so is whatever makes a URL useless. Open reads files, and does no network I/O.
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
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("there is no usable kubeconfig, nor a pod's service account: %w", err)
	}
	return newOwn(cfg, namespace, name)
}

// newOwn is NewDecider with a client of its own.
func newOwn(cfg *rest.Config, namespace, name string) (*Decider, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.APIPath = &coordinationv1.SchemeGroupVersion, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.QPS, cfg.UserAgent, cfg.WarningHandler = -1, "leaderelection", rest.NoWarnings{}
	http, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	client, err := rest.RESTClientForConfigAndClient(cfg, http)
	if err != nil {
		return nil, err
	}
	d := NewDecider(client, namespace, name, nil)
	d.close = func() { utilnet.CloseIdleConnectionsFor(http.Transport) }
	return d, nil
}
