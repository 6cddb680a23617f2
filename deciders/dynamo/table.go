package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/dynamo/internal/dynamoproof"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// mayCreate reports whether err means that the table is missing and is to be
// created.
func (b *backend) mayCreate(err error) bool {
	var missing *types.ResourceNotFoundException
	return err != nil && b.create && errors.As(err, &missing)
}

// createTable creates the table, unless another does, and waits until it is
// there. Should ctx end before, the next call goes on waiting.
func (b *backend) createTable(ctx context.Context) error {
	in := &dynamodb.CreateTableInput{
		TableName:            b.table,
		BillingMode:          types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: &b.pk, KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &b.pk, AttributeType: types.ScalarAttributeTypeS}},
	}
	if b.sk != "" {
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &b.sk, KeyType: types.KeyTypeRange})
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &b.sk, AttributeType: types.ScalarAttributeTypeS})
	}
	var exists *types.ResourceInUseException // or is being created
	if _, err := b.client.CreateTable(ctx, in, b.call...); err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("creating the table: %w", err)
	}
	const most = 2 * time.Second
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, most) {
		out, err := b.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: b.table}, b.call...)
		var missing *types.ResourceNotFoundException // which may be said of a table just made
		switch {
		case err != nil && !errors.As(err, &missing):
			return fmt.Errorf("waiting for the table that is being created: %w", err)
		case err == nil && out.Table != nil && (out.Table.TableStatus == types.TableStatusActive || out.Table.TableStatus == types.TableStatusUpdating):
			return nil
		}
		again := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			again.Stop()
			return fmt.Errorf("waiting for the table that is being created: %w", ctx.Err())
		case <-again.C:
		}
	}
}

// VerifyTable returns an error that wraps leaderelection.ErrPermanent if the table is unfit for an
// election: it does not exist, its key is not what the options say, or it is a global table whose
// regions are only eventually consistent, so that candidates in two regions could both lead. It is
// for set-up and diagnosis, and needs the permission dynamodb:DescribeTable. A RaceDecider's calls
// do not need it.
func (d *Decider) VerifyTable(ctx context.Context) error {
	table, err := d.b.describe(ctx, d.election.Ready(ctx))
	if err == nil {
		err = d.b.unfit(table)
	}
	if err != nil {
		return d.election.Failed(ctx, "verifying", err)
	}
	return nil
}

// describe asks for the table, unless there is an error already.
func (b *backend) describe(ctx context.Context, err error) (*types.TableDescription, error) {
	if err != nil {
		return nil, err
	}
	out, err := b.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: b.table}, b.call...)
	switch {
	case err != nil:
		return nil, err
	case out.Table == nil:
		return nil, errors.New("the response does not describe the table")
	}
	return out.Table, nil
}

// unfit says what makes the table unfit for an election.
func (b *backend) unfit(table *types.TableDescription) error {
	var pk, sk string
	for _, k := range table.KeySchema {
		if k.KeyType == types.KeyTypeHash {
			pk = aws.ToString(k.AttributeName)
		} else {
			sk = aws.ToString(k.AttributeName)
		}
	}
	if pk != b.pk || sk != b.sk {
		return store.Wrong("the table's partition key is %q and its sort key %q, and the options say %q and %q: correct PartitionKey and SortKey", pk, sk, b.pk, b.sk)
	}
	for _, a := range table.AttributeDefinitions {
		if name := aws.ToString(a.AttributeName); (name == pk || name == sk) && a.AttributeType != types.ScalarAttributeTypeS {
			return store.Wrong("the table's key attribute %q has the type %s, and must be a string (S): use another table", name, a.AttributeType)
		}
	}
	if where := dynamoproof.Regions(table); where != "" {
		return store.Wrong("%s, where candidates in two regions could both lead: %s", where, dynamoproof.OneRegion)
	}
	return nil
}

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It asks whether the table is a global one whose
// regions overwrite each other. It needs the permission dynamodb:DescribeTable.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	table, err := d.b.describe(ctx, d.election.Ready(ctx))
	if err != nil {
		return nil, d.election.Failed(ctx, "examining the table of", err)
	}
	if where := dynamoproof.Regions(table); where != "" {
		return []durability.Warning{{
			Detail: where + ": each region decides conditions for itself and the last writer wins, so a candidate in another region leads as well",
			Advice: dynamoproof.OneRegion + "; until then start candidates in this region alone, and never in another while one of these may run",
		}}, nil
	}
	return nil, nil
}
