package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

var (
	errNotKubernetes = errors.New("the response lacks what a kube-apiserver's responses have: is there a proxy, or something else, at that address?")
	errNotWritten    = errors.New("the response does not show what was written: does a proxy, or an admission webhook, change it?")
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

// noted returns err, of a request. What a renewed certificate or token may cure has files read again.
func (b *backend) noted(err error) error {
	if err != nil && (store.BadCertificate(err) || badClientCertificate(err) || apierrors.IsUnauthorized(err)) {
		b.distrusted()
	}
	return err
}

// badClientCertificate reports whether err is that the server does not take the client's
// certificate.
func badClientCertificate(err error) bool {
	_, alert, found := strings.Cut(err.Error(), "remote error: tls: ")
	return found && strings.Contains(alert, "certificate")
}

// forbids reports whether a Forbidden is for want of a permission on Leases, and no other
// word of the server's, such as of a quota or an admission webhook.
func forbids(s *metav1.Status) bool {
	return strings.Contains(s.Message, " cannot ") && strings.Contains(s.Message, ` resource "leases"`)
}

// tooLong reports whether an Invalid is for the length of the annotations.
func tooLong(s *metav1.Status) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeTooLong && c.Field == "metadata.annotations"
	})
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	v := b.judge(err)
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked { // of the header Retry-After, or of the Status
		v.After = time.Duration(max(seconds, 0)) * time.Second
	}
	return v
}

func (b *backend) judge(err error) store.Verdict {
	if apierrors.IsTooManyRequests(err) { // its priority and fairness says so in plain text
		return store.Passing("the API server is overloaded, or its priority and fairness settings leave too little for this user: see kubectl get flowschemas")
	}
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
		return store.Denied("the API server does not accept the credentials: has the token expired, and is the kubeconfig for this cluster?")
	case metav1.StatusReasonForbidden:
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return store.Permanent("the namespace " + b.namespace + " is being deleted")
		case forbids(s):
			return store.Denied(fmt.Sprintf("bind the candidate's service account to a Role in namespace %s that has the verbs get, update and watch on leases (apiGroup coordination.k8s.io) "+
				"of the name %s, and create on leases without a name unless the Lease is made beforehand; an observer's needs get and watch", b.namespace, b.name))
		}
		return store.Denied("") // a quota, or a policy: the server says which
	case metav1.StatusReasonRequestEntityTooLarge:
		return store.Permanent(keepShort)
	case metav1.StatusReasonInvalid:
		if tooLong(s) {
			return store.Permanent(keepShort)
		}
		return store.Permanent("")
	}
	return store.Verdict{}
}

const keepShort = "keep ConnectionParams and HostPort short: all annotations of the Lease together may have 256 KiB"

// judgeOther judges what is not the API server's word.
func (b *backend) judgeOther(err error) store.Verdict {
	text := err.Error()
	var unexpected apierrors.APIStatus
	switch {
	case store.BadCertificate(err):
		return store.Permanent("trust the authority of the API server's certificate (certificate-authority in the kubeconfig), and connect by a name that it has")
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return store.Permanent("the server does not speak TLS on this port: is the kubeconfig's server right?")
	case badClientCertificate(err):
		return store.Permanent("show the API server a client certificate that it accepts and that has not expired")
	case errors.As(err, &unexpected):
		return store.Passing(errNotKubernetes.Error())
	}
	return store.Verdict{}
}
