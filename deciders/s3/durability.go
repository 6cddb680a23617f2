package s3

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/s3/internal/answers"
)

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It reads the record, and looks whether a lifecycle
// rule will delete it, and whether replication has written it or copies it. It needs only the
// permission to read.
func (d *Decider) Durability(ctx context.Context) (warnings []durability.Warning, err error) {
	if isDirectory(d.b.bucket) {
		warnings = append(warnings, durability.Warning{
			Detail: "a directory bucket keeps the record in one zone: if the zone is lost, the count is, too",
			Advice: "use a general purpose bucket if something is fenced by its numbers",
		})
	}
	var out *s3.GetObjectOutput
	if err = d.election.Ready(ctx); err == nil {
		out, err = d.b.ask(ctx, d.b.key)
	}
	switch {
	case answers.Missing(err):
		err = errors.New("lifecycle rules and replication are not known, since there is no record yet: ask again after somebody has led")
		fallthrough
	case err != nil:
		return warnings, d.election.Failed(ctx, "examining", err)
	}
	_ = out.Body.Close()
	return append(warnings, examine(out)...), nil
}

// examine says what an answer tells of the bucket.
func examine(out *s3.GetObjectOutput) (warnings []durability.Warning) {
	if when := aws.ToString(out.Expiration); when != "" {
		warnings = append(warnings, durability.Warning{
			Detail: "a lifecycle rule deletes the record, and its count, if nobody leads until then: " + when,
			Advice: "limit the rule to other keys",
		})
	}
	switch out.ReplicationStatus {
	case "":
	case types.ReplicationStatusReplica:
		warnings = append(warnings, durability.Warning{
			Detail: "replication has written this record: it is a copy from another bucket, whose candidates lead as well, and replication ignores conditions",
			Advice: "have all candidates name one and the same bucket, and no rule replicate into it",
		})
	default:
		warnings = append(warnings, durability.Warning{
			Detail: "the record is replicated to another bucket, and the copy lags behind (x-amz-replication-status " + string(out.ReplicationStatus) + ")",
			Advice: "start no candidate on the copy; after a fail-over to it, reset the record there when all candidates here have been stopped for a term",
		})
	}
	return warnings
}
