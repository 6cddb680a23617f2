package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It reads the bucket's settings: rules that delete the
// record, retention and holds that prevent replacing it, and regions that lag behind. This needs
// storage.buckets.get, which candidates need not have.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	err := d.election.Ready(ctx)
	var bucket *storage.BucketAttrs
	b := d.election.Store.(*backend)
	if err == nil {
		bucket, err = b.bucket(ctx).Attrs(ctx)
	}
	var answer *googleapi.Error
	if errors.As(err, &answer) && answer.Code == http.StatusForbidden {
		err = errors.New("reading the bucket's settings needs storage.buckets.get, as in the role Storage Legacy Bucket Reader (roles/storage.legacyBucketReader)")
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining", err)
	}
	return examine(bucket, b.name), nil
}

// examine says what of a bucket's settings may harm the record name.
func examine(bucket *storage.BucketAttrs, name string) (warnings []durability.Warning) {
	warn := func(advice, detail string, args ...any) {
		warnings = append(warnings, durability.Warning{Detail: fmt.Sprintf(detail, args...), Advice: advice})
	}
	for _, r := range bucket.Lifecycle.Rules {
		if r.Action.Type == storage.DeleteAction && concerns(&r.Condition, name) {
			warn("limit the rule to other prefixes, or to noncurrent versions", "a lifecycle rule deletes the record, and its count, if nobody leads %s", when(&r.Condition))
		}
	}
	if p := bucket.RetentionPolicy; p != nil && p.RetentionPeriod > 0 {
		warn("use a bucket without a retention policy", "a retention policy keeps the record from being replaced for %v: after the first write nobody can extend or acquire", p.RetentionPeriod)
	}
	if bucket.DefaultEventBasedHold {
		warn("use a bucket without it", "each new object is put on an event-based hold, which keeps the record from being replaced: after the first write nobody can extend or acquire")
	}
	switch bucket.LocationType {
	case "dual-region", "multi-region":
		warn("use a bucket of one region, which keeps the record in two zones, if something is fenced by its numbers",
			"the bucket is in several regions (%s %s), and a write is acknowledged before the others have it: if one is lost, so may be the last writes", bucket.LocationType, bucket.Location)
	case "zone":
		warn("use a bucket of a region if something is fenced by its numbers", "the bucket keeps the record in one zone (%s): if it is lost, the count is, too", bucket.Location)
	}
	return warnings
}

// when says after what time a rule deletes.
func when(c *storage.LifecycleCondition) string {
	if !c.CreatedBefore.IsZero() {
		return "after " + c.CreatedBefore.Format(time.DateOnly)
	}
	return fmt.Sprintf("for %d days", c.AgeInDays)
}

// concerns reports whether a rule with this condition may apply to the live object name.
func concerns(c *storage.LifecycleCondition, name string) bool {
	any := func(of []string, is func(s, part string) bool) bool {
		for _, part := range of {
			if is(name, part) {
				return true
			}
		}
		return len(of) == 0
	}
	return c.Liveness != storage.Archived && c.NumNewerVersions == 0 && c.DaysSinceNoncurrentTime == 0 && c.NoncurrentTimeBefore.IsZero() &&
		c.DaysSinceCustomTime == 0 && c.CustomTimeBefore.IsZero() && // the record has no custom time
		any(c.MatchesPrefix, strings.HasPrefix) && any(c.MatchesSuffix, strings.HasSuffix)
}
