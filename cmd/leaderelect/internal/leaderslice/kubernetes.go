//go:build !no_kubernetes

package leaderslice

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/c8e606e4/leaderelection"
)

// numberKey is the annotation that has the fencing token of the leadership that wrote the slice.
const numberKey = "leaderelection/token"

// object is the slice in the API server. It makes its requests by itself: client-go's typed
// client would link every API of Kubernetes.
type object struct {
	http    *http.Client
	address string
}

// Open returns the EndpointSlice of this name in the pod's namespace, for a candidate with these
// addresses. As for the store, a kubeconfig comes first, and then the pod's service account. It
// does no network I/O.
func Open(name string, hostPorts []string) (Slice, error) {
	for _, hp := range hostPorts {
		if _, err := netip.ParseAddrPort(hp); err != nil {
			return nil, fmt.Errorf("%w, and %q is none: set --host-port to a port alone, or to addresses", ErrHostPort, hp)
		}
	}
	if len(hostPorts) == 0 {
		return nil, fmt.Errorf("%w, and there is none: set --host-port", ErrHostPort)
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("there is no usable kubeconfig, nor a pod's service account: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "leaderelect"
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	path := server.JoinPath("apis/discovery.k8s.io/v1/namespaces", namespace, "endpointslices", url.PathEscape(name))
	return &object{client, path.String()}, nil
}

// endpoint is one of a slice.
type endpoint struct {
	Addresses  []string   `json:"addresses"`
	Conditions conditions `json:"conditions"`
}

type conditions struct {
	Ready *bool `json:"ready,omitempty"`
}

// metadata is what matters of an object's.
type metadata struct {
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations"`
}

// Lead implements Slice. The write is conditional on what was read: so a leader that has
// been deposed replaces nothing of the next one's.
func (o *object) Lead(ctx context.Context, number leaderelection.ElectionNumber, hostPorts []string) error {
	var is struct {
		Metadata    metadata   `json:"metadata"`
		AddressType string     `json:"addressType"`
		Endpoints   []endpoint `json:"endpoints"`
	}
	if err := o.call(ctx, http.MethodGet, nil, &is); err != nil {
		return err
	}
	version, unread := strconv.ParseUint(is.Metadata.ResourceVersion, 10, 64)
	by, _ := strconv.ParseUint(is.Metadata.Annotations[numberKey], 10, 64)
	switch {
	case len(hostPorts) == 0 && by != uint64(number):
		return nil
	case by > uint64(number):
		return fmt.Errorf("the EndpointSlice was written with token %d (annotation %s), after %d", by, numberKey, number)
	case unread != nil || version == 0: // to the API server a patch with none, or with 0, is unconditional
		return fmt.Errorf("the API server gives the EndpointSlice the resourceVersion %q, with which it cannot be written safely", is.Metadata.ResourceVersion)
	case is.AddressType != "IPv4" && is.AddressType != "IPv6":
		return fmt.Errorf("the EndpointSlice is for addresses of type %q, want IPv4 or IPv6: delete it, and make one of that type", is.AddressType)
	}
	want, ready := []endpoint{}, true
	for _, hp := range hostPorts {
		at, err := netip.ParseAddrPort(hp)
		if err == nil && !at.Addr().Is4In6() && at.Addr().Is4() == (is.AddressType == "IPv4") {
			want = []endpoint{{Addresses: []string{at.Addr().String()}, Conditions: conditions{&ready}}}
			break
		}
	}
	if len(want) == 0 && len(hostPorts) > 0 {
		return fmt.Errorf("the EndpointSlice is for addresses of type %s, and %q has none", is.AddressType, hostPorts)
	}
	same := func(a, b endpoint) bool { return slices.Equal(a.Addresses, b.Addresses) }
	if by == uint64(number) && slices.EqualFunc(is.Endpoints, want, same) {
		return nil
	}
	return o.call(ctx, http.MethodPatch, map[string]any{
		"metadata":  metadata{is.Metadata.ResourceVersion, map[string]string{numberKey: strconv.FormatUint(uint64(number), 10)}},
		"endpoints": want,
	}, nil)
}

// call makes a request, and decodes its answer.
func (o *object) call(ctx context.Context, method string, send, into any) error {
	var body []byte
	if send != nil {
		var err error
		if body, err = json.Marshal(send); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, o.address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	if send != nil {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := o.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(text, &status) // what is none has no message
		return fmt.Errorf("%s %s: the API server answers %s: %s", method, r.URL.Path, answer.Status, status.Message)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
