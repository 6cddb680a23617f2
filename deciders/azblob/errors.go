package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/c8e606e4/leaderelection/deciders/durability"
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

// ofAzure reports whether a service's URL is one of Azure's own clouds. Of a custom domain
// it is not known.
func ofAzure(service string) bool {
	u, err := url.Parse(service)
	if err != nil {
		return false
	}
	for _, cloud := range []string{".core.windows.net", ".storage.azure.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net"} {
		if strings.HasSuffix(u.Hostname(), cloud) {
			return true
		}
	}
	return false
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

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It reads the record's blob, and looks for what
// prevents replacing it, for an expiry, and for replication. It needs only the permission to read.
// No response shows lifecycle rules or the account's redundancy.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	var is blob.GetPropertiesResponse
	err := d.election.Ready(ctx)
	if err == nil {
		is, err = d.b.blob.GetProperties(once(ctx), nil)
	}
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		err = errors.New("leases, holds and policies are not known, since there is no record yet: ask again after somebody has led")
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining", err)
	}
	return examine(&is, d.b.native != nil), nil
}

// examine says what an answer tells of the blob. With native leases of ours a lease is nothing strange.
func examine(is *blob.GetPropertiesResponse, native bool) (warnings []durability.Warning) {
	warn := func(advice, detail string, args ...any) {
		warnings = append(warnings, durability.Warning{Detail: fmt.Sprintf(detail, args...), Advice: advice})
	}
	if isLeased(is.LeaseState) && !native {
		span := "a while"
		if is.LeaseDuration != nil && *is.LeaseDuration == lease.DurationTypeInfinite {
			span = "ever"
		}
		warn("break it (az storage blob lease break), or give all candidates Options.Leases if it is a leader's",
			"somebody else holds a native lease on the record for %s: meanwhile nobody can extend or acquire", span)
	}
	if is.LegalHold != nil && *is.LegalHold {
		warn("use a container without", "the blob is under a legal hold, which keeps it from being replaced: nobody can extend or acquire")
	}
	if until := is.ImmutabilityPolicyExpiresOn; until != nil {
		warn("use a container without", "an immutability policy keeps the blob from being replaced until %v: nobody can extend or acquire", until.UTC())
	}
	if when := is.ExpiresOn; when != nil {
		warn("remove the blob's expiry", "the record, and its count, is deleted at %v", when.UTC())
	}
	switch {
	case is.ObjectReplicationPolicyID != nil:
		warn("have all candidates name one and the same account, and no policy replicate into it",
			"object replication has written this record: it is a copy from another account, whose candidates lead as well, and replication ignores conditions")
	case len(is.ObjectReplicationRules) > 0:
		warn("start no candidate on the copy; after a fail-over to it, reset the record there when all candidates here have been stopped for a term",
			"the record is replicated to another account, and the copy lags behind")
	}
	return warnings
}
