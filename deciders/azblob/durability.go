package azblob

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

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
