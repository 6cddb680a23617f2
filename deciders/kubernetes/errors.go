package kubernetes

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

var (
	errNotKubernetes = errors.New("the answer lacks what a kube-apiserver's answers have: is there a proxy, or something else, at that address?")
	errNotWritten    = errors.New("the answer does not show what was to be written: does a proxy, or an admission webhook, change it?")
	errFeedEnded     = errors.New("the watch ended as soon as it had begun")
)

// statusOf is what the API server said of an error, or nil: something else said it.
func statusOf(err error) *metav1.Status {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return nil
	}
	status := s.Status()
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			if c.Type == metav1.CauseTypeUnexpectedServerResponse {
				return nil // client-go's own words for an answer that is no Status
			}
		}
	}
	return &status
}

// missing reports whether err is the API server's word that there is no such Lease.
func (b *backend) missing(err error) bool {
	s := statusOf(err)
	return s != nil && s.Reason == metav1.StatusReasonNotFound && s.Details != nil && s.Details.Name == b.name && s.Details.Kind == "leases"
}

// expired reports whether err is that a watch cannot be resumed from where it was.
func expired(err error) bool {
	s := statusOf(err)
	return s != nil && (s.Reason == metav1.StatusReasonExpired || s.Reason == metav1.StatusReasonGone)
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	s := statusOf(err)
	if s == nil {
		return b.judgeOther(err)
	}
	switch s.Reason {
	case metav1.StatusReasonConflict, metav1.StatusReasonAlreadyExists:
		return store.Lost
	case metav1.StatusReasonNotFound:
		switch {
		case b.missing(err):
			return store.Lost // of an update: it was deleted
		case s.Details != nil && s.Details.Kind == "namespaces":
			return store.Permanent("create the namespace " + b.namespace)
		}
	case metav1.StatusReasonUnauthorized:
		return store.Permanent("the API server does not accept the credentials: has the token expired, and is the kubeconfig for this cluster?")
	case metav1.StatusReasonForbidden:
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return store.Permanent("the namespace " + b.namespace + " is being deleted")
		}
		return store.Permanent(fmt.Sprintf("bind the candidate's service account to a Role in namespace %s that has the verbs get, update and watch on leases (apiGroup coordination.k8s.io) "+
			"of the name %s, and create on leases without a name unless the Lease is made beforehand; an observer's needs get and watch", b.namespace, b.name))
	case metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge:
		return store.Permanent("the API server refuses the Lease as invalid; if it is too long, keep ConnectionParams and HostPort short: all annotations together may have 256 KiB")
	case metav1.StatusReasonTooManyRequests:
		return store.Passing("the API server is overloaded, or its priority and fairness settings leave too little for this user: see kubectl get flowschemas")
	}
	return store.Verdict{}
}

// judgeOther judges what is not the API server's word.
func (b *backend) judgeOther(err error) store.Verdict {
	text := err.Error()
	var unexpected apierrors.APIStatus
	switch {
	case store.BadCertificate(err):
		return store.Permanent("trust the authority of the API server's certificate (certificate-authority in the kubeconfig), and connect by a name that it has")
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return store.Permanent("the server does not speak TLS on this port: is the kubeconfig's server right?")
	case strings.Contains(text, "remote error: tls: "):
		return store.Permanent("show the API server a client certificate that it accepts and that has not expired")
	case errors.As(err, &unexpected):
		return store.Passing(errNotKubernetes.Error())
	}
	return store.Verdict{}
}
