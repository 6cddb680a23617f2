package dynamo

import (
	"context"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It asks whether the table is a global one whose
// regions overwrite each other. It needs the permission dynamodb:DescribeTable.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	table, err := d.b.describe(ctx, d.election.Ready(ctx))
	if err != nil {
		return nil, d.election.Failed(ctx, "examining the table of", err)
	}
	if where := regions(table); where != "" {
		return []durability.Warning{{
			Detail: where + ": each region decides conditions for itself and the last writer wins, so a candidate in another region leads as well",
			Advice: oneRegion + "; until then start candidates in this region alone, and never in another while one of these may run",
		}}, nil
	}
	return nil, nil
}
