//go:build !no_kubernetes

package podlabel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is the pods of a namespace that match a selector. It makes its requests by
// itself: client-go's typed client would link every API of Kubernetes.
type cluster struct {
	http     *http.Client
	base     string // the address of the namespace's pods
	selector string
}

// Open returns the pods that match the selector, such as app=web, in the pod's namespace. As
// for the store, a kubeconfig comes first, and then the pod's service account. It does no
// network I/O.
func Open(selector string) (Pods, error) {
	if strings.TrimSpace(selector) == "" {
		return nil, fmt.Errorf("the selector is empty: without one the label would be taken from all pods of the namespace")
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
	return &cluster{client, server.JoinPath("api/v1/namespaces", namespace, "pods").String(), selector}, nil
}

func (c *cluster) Labelled(ctx context.Context) ([]string, error) {
	query := url.Values{"labelSelector": {c.selector + "," + Label}}
	text, err := c.call(ctx, http.MethodGet, c.base+"?"+query.Encode(), "")
	if err != nil {
		return nil, fmt.Errorf("listing the pods with %s: %w", Label, err)
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("listing the pods with %s: %w", Label, err)
	}
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Metadata.Name)
	}
	return names, nil
}

func (c *cluster) Label(ctx context.Context, pod string, give bool) error {
	value := "null"
	if give {
		value = `"true"`
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, Label, value)
	if _, err := c.call(ctx, http.MethodPatch, c.base+"/"+url.PathEscape(pod), patch); err != nil {
		return fmt.Errorf("labelling the pod %s: %w", pod, err)
	}
	return nil
}

// most is how much of an answer is read: some thousand labelled pods.
const most = 8 << 20

// call makes a request and returns its answer. Only metadata is asked for.
func (c *cluster) call(ctx context.Context, method, address, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	kind := "PartialObjectMetadata"
	if method == http.MethodGet {
		kind += "List"
	} else {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	r.Header.Set("Accept", "application/json;as="+kind+";g=meta.k8s.io;v=v1")
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(text, &status) // what is none has no message
		return nil, fmt.Errorf("the API server answers %s: %s", answer.Status, status.Message)
	}
	return text, nil
}
