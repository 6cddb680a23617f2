package azblob

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	// The SDK's own time was up: whatever else err says is a consequence.
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return passing
	}
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		v := ofAnswer(answer)
		if answer.RawResponse != nil {
			v.After = store.RetryAfter(answer.RawResponse.Header.Get("Retry-After"))
		}
		return v
	}
	var refused *azidentity.AuthenticationFailedError
	if errors.As(err, &refused) {
		if r := refused.RawResponse; r != nil && r.StatusCode >= 400 && r.StatusCode < 500 && r.StatusCode != http.StatusTooManyRequests {
			return noCredential
		}
		return passing // the token service cannot be reached, or is in trouble
	}
	var final interface{ NonRetriable() }
	if errors.As(err, &final) {
		return noCredential // none was found at all
	}
	return passing
}

var (
	passing      = store.Verdict{}
	noContainer  = store.Permanent("there is no such container: make it, correct its name, or set CreateContainer (create=true in an address)")
	notPermitted = store.Denied("not permitted: the role Storage Blob Data Contributor on the container is needed, or a shared access signature with the permissions rcw that has not expired; is the account's firewall open to this machine?")
	noCredential = store.Denied("the credentials are not accepted: they are missing, wrong or expired, or this machine's clock is off")
	notReplaced  = store.Permanent("the blob cannot be replaced, as it must be every few seconds: use a container without an immutability policy or legal hold, and a block blob in an online tier")
	notAllowed   = store.Permanent("the store does not allow that: check the names and options")
	// othersLease may pass: the lease may run out.
	othersLease = store.Passing("another program or person has a lease on the record's blob, and it could not be broken: end it (az storage blob lease break, or Break lease in the portal), and let nothing else lease this blob")
)

// ofAnswer says what an answer of the store's means.
func ofAnswer(e *azcore.ResponseError) store.Verdict {
	if e.ErrorCode == "" {
		return passing // something on the way said it: Azure's own errors have a code
	}
	switch bloberror.Code(e.ErrorCode) {
	case bloberror.ConditionNotMet, bloberror.BlobAlreadyExists, bloberror.BlobNotFound:
		return store.Lost
	case bloberror.ContainerNotFound:
		return noContainer
	case bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo, bloberror.NoAuthenticationInformation:
		return noCredential
	case bloberror.MD5Mismatch, bloberror.InvalidMD5:
		return passing // what was sent was spoilt on its way
	case bloberror.BlobImmutableDueToPolicy, bloberror.BlobArchived, bloberror.BlobBeingRehydrated, bloberror.InvalidBlobType:
		return notReplaced
	case bloberror.LeaseIDMissing, bloberror.LeaseIDMismatchWithBlobOperation, bloberror.LeaseIDMismatchWithLeaseOperation, bloberror.LeaseAlreadyPresent:
		return othersLease
	}
	switch e.StatusCode {
	case http.StatusUnauthorized:
		return noCredential
	case http.StatusForbidden:
		return notPermitted
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests:
		return passing // what is left of them may pass
	}
	if e.StatusCode >= 400 && e.StatusCode < 500 {
		return notAllowed
	}
	return passing
}

// place is the blob's URL without a shared access signature.
func place(service, container, blob string) string {
	u, _, _ := strings.Cut(service, "?")
	return strings.TrimSuffix(redact.URL(u), "/") + "/" + container + "/" + blob
}

// checkNames says what the store will never allow. It leaves the finer points to
// the store.
func checkNames(container, blob string) error {
	wrong := func(what, name, why string) error {
		return store.Wrong("the %s name %q %s", what, name, why)
	}
	switch {
	case container == "$root" || container == "$web":
	case len(container) < 3 || len(container) > 63:
		return wrong("container", container, "must have 3 to 63 characters")
	case strings.ContainsFunc(container, func(r rune) bool { return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-') }):
		return wrong("container", container, "may have only a-z, 0-9 and '-'")
	case container[0] == '-' || container[len(container)-1] == '-' || strings.Contains(container, "--"):
		return wrong("container", container, "must not begin or end with '-' or have two of them in a row")
	}
	switch {
	case blob == "" || utf8.RuneCountInString(blob) > 1024:
		return wrong("blob", blob, "must have 1 to 1024 characters")
	case !utf8.ValidString(blob):
		return wrong("blob", blob, "is not UTF-8")
	case strings.HasSuffix(blob, ".") || strings.HasSuffix(blob, "/"):
		return wrong("blob", blob, "must not end with '.' or '/', which Azure drops")
	}
	return nil
}
