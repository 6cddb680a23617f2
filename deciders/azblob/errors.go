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
	hint, lost := classify(err)
	denied := hint == noCredential || hint == notPermitted
	v := store.Verdict{Advice: hint, Permanent: hint != "" && !denied, Denied: denied, Lost: lost}
	if e := (*azcore.ResponseError)(nil); errors.As(err, &e) && e.RawResponse != nil {
		v.After = store.RetryAfter(e.RawResponse.Header.Get("Retry-After"))
	}
	if bloberror.HasCode(err, foreign...) {
		v.Advice = othersLease
	}
	return v
}

// The answers that no retry can cure, and what to do about them.
const (
	noContainer  = "there is no such container: make it, correct its name, or set CreateContainer (create=true in an address)"
	notPermitted = "not permitted: the role Storage Blob Data Contributor on the container is needed, or a shared access signature with the permissions rcw that has not expired; is the account's firewall open to this machine?"
	noCredential = "the credentials are not accepted: they are missing, wrong or expired, or this machine's clock is off"
	notReplaced  = "the blob cannot be replaced, as it must be every few seconds: use a container without an immutability policy or legal hold, and a block blob in an online tier"
	notAllowed   = "the store does not allow that: check the names and options"
)

// foreign are the answers to a request on a blob that is under somebody else's lease.
var foreign = []bloberror.Code{bloberror.LeaseIDMissing, bloberror.LeaseIDMismatchWithBlobOperation, bloberror.LeaseIDMismatchWithLeaseOperation, bloberror.LeaseAlreadyPresent}

// othersLease is what to do about it. It may pass: the lease may run out.
const othersLease = "another program or person has a lease on the record's blob, and it could not be broken: end it (az storage blob lease break, or Break lease in the portal), and let nothing else lease this blob"

// classify says what err means: what to do about it if no retry can cure it,
// and whether the blob is another version.
func classify(err error) (hint string, lost bool) {
	// The SDK's own time was up: whatever else err says is a consequence.
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return "", false
	}
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		return ofAnswer(answer)
	}
	var refused *azidentity.AuthenticationFailedError
	if errors.As(err, &refused) {
		if r := refused.RawResponse; r != nil && r.StatusCode >= 400 && r.StatusCode < 500 && r.StatusCode != http.StatusTooManyRequests {
			return noCredential, false
		}
		return "", false // the token service cannot be reached, or is in trouble
	}
	var final interface{ NonRetriable() }
	if errors.As(err, &final) {
		return noCredential, false // none was found at all
	}
	return "", false
}

func ofAnswer(e *azcore.ResponseError) (hint string, lost bool) {
	if e.ErrorCode == "" {
		return "", false // something on the way said it: Azure's own errors have a code
	}
	switch bloberror.Code(e.ErrorCode) {
	case bloberror.ConditionNotMet, bloberror.BlobAlreadyExists, bloberror.BlobNotFound:
		return "", true
	case bloberror.ContainerNotFound:
		return noContainer, false
	case bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo, bloberror.NoAuthenticationInformation:
		return noCredential, false
	case bloberror.MD5Mismatch, bloberror.InvalidMD5:
		return "", false // what was sent was spoilt on its way
	case bloberror.BlobImmutableDueToPolicy, bloberror.BlobArchived, bloberror.BlobBeingRehydrated, bloberror.InvalidBlobType:
		return notReplaced, false
	}
	switch e.StatusCode {
	case http.StatusUnauthorized:
		return noCredential, false
	case http.StatusForbidden:
		return notPermitted, false
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests:
		return "", false // what is left of them may pass
	}
	if e.StatusCode >= 400 && e.StatusCode < 500 {
		return notAllowed, false
	}
	return "", false
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
