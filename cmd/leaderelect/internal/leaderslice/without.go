//go:build no_kubernetes

package leaderslice

import "errors"

// Open returns an error: this program was built without Kubernetes.
func Open(string, []string) (Slice, error) {
	return nil, errors.New("this program was built without Kubernetes (no_kubernetes)")
}
