//go:build no_kubernetes

package podlabel

import "errors"

// Open returns an error: this program was built without Kubernetes.
func Open(string) (Pods, error) {
	return nil, errors.New("this program was built without Kubernetes (no_kubernetes)")
}
