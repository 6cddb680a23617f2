/*
Package fencedynamo fences writes to DynamoDB. The check is part of the write's condition
expression, so DynamoDB decides on both in one step.

	input := &dynamodb.PutItemInput{TableName: &table, Item: item}
	_, err := fencedynamo.Put(ctx, client, token, input, "fence")
	if errors.Is(err, fence.ErrStale) { ... }

The item keeps the greatest number seen in an attribute. Each item is its own fence: until the new
leader has written an item, the item accepts an old leader's write. For one fence for several items,
write them in a transaction with an item that is the fence:

	input := &dynamodb.TransactWriteItemsInput{TransactItems: items}
	_, err := fencedynamo.Transact(ctx, client, token, input, "fence", &fencedynamo.TransactOptions{FenceTable: "orders", FenceKey: fenceKey})

Transactions of one leader that share a fence item must not run at the same time: DynamoDB cancels
all but one of them (TransactionConflict).

A response without a request id or a checksum is not from DynamoDB. The SDK would accept it if its
status is 200, even if it is empty. Here it is an error, and the write may or may not have happened.
A fenced write costs the same as the write without the fence, even if it is refused.

# What it needs of the table

  - One region that decides. In a global table with eventual consistency each region decides
    conditions by itself, so a deposed leader can write in another region.
  - No time to live for fenced items, see below. Time to live must also not use the fence's
    attribute: election numbers look like times that have long passed.
  - A server that honors conditions. DynamoDB does.

[Verify] checks the regions, the attribute of time to live, and the server. No setting of a table
makes DynamoDB lose acknowledged writes.

# What becomes of fences

The fence is part of the item:

  - If an item is deleted (even by [Delete] or time to live), its fence is gone, and an old leader
    can write the item again. If that matters, delete in a transaction with a fence item, or only
    mark items as deleted.
  - If a table is restored, older fences come back. Leaders deposed since then can write its items
    again.

After either, let the leader in office write each item before anything relies on it.

A request that you give up may still happen, as a whole or not at all, perhaps later.
*/
package fencedynamo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo/internal/dynamoproof"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// The placeholders that this package adds to expressions.
const (
	nameMark  = "#leaderelectionFence"
	valueMark = ":leaderelectionFence"
	condition = "(attribute_not_exists(" + nameMark + ") OR " + nameMark + " <= " + valueMark + ")"
)

// Client is what this package needs of a *dynamodb.Client of the AWS SDK.
type Client interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

var _ Client = (*dynamodb.Client)(nil)

// Put puts in's item if token is admitted, and keeps the token's number in attribute. If a greater
// number has been seen, the error is a *fence.StaleError. If in has a condition of its own that
// does not hold, the error wraps fence.ErrNotWritten. With an emulator that refuses without
// returning the item, a stale token gets fence.ErrNotWritten as well. Put does not change in.
func Put(ctx context.Context, client Client, token fence.Token, in *dynamodb.PutItemInput, attribute string) (*dynamodb.PutItemOutput, error) {
	f, err := newFencing(token, attribute)
	if err != nil {
		return nil, err
	}
	put := *in
	put.Item = with(in.Item, attribute, f.number)
	f.add(&put.ConditionExpression, &put.ExpressionAttributeNames, &put.ExpressionAttributeValues, &put.ReturnValuesOnConditionCheckFailure)
	out, err := client.PutItem(ctx, &put, dynamoproof.Required)
	return out, f.stale(err)
}

// Update is [Put] for an update. It adds the number to what in's UpdateExpression sets, if
// anything.
func Update(ctx context.Context, client Client, token fence.Token, in *dynamodb.UpdateItemInput, attribute string) (*dynamodb.UpdateItemOutput, error) {
	f, err := newFencing(token, attribute)
	if err != nil {
		return nil, err
	}
	update := *in
	update.UpdateExpression = joined(in.UpdateExpression)
	f.add(&update.ConditionExpression, &update.ExpressionAttributeNames, &update.ExpressionAttributeValues, &update.ReturnValuesOnConditionCheckFailure)
	out, err := client.UpdateItem(ctx, &update, dynamoproof.Required)
	return out, f.stale(err)
}

// Delete is [Put] for a delete. The fence goes with the item, see the package's documentation.
// Deleting an item that does not exist succeeds.
func Delete(ctx context.Context, client Client, token fence.Token, in *dynamodb.DeleteItemInput, attribute string) (*dynamodb.DeleteItemOutput, error) {
	f, err := newFencing(token, attribute)
	if err != nil {
		return nil, err
	}
	del := *in
	f.add(&del.ConditionExpression, &del.ExpressionAttributeNames, &del.ExpressionAttributeValues, &del.ReturnValuesOnConditionCheckFailure)
	out, err := client.DeleteItem(ctx, &del, dynamoproof.Required)
	return out, f.stale(err)
}

// TransactOptions are for [Transact]. The zero value fences each item by itself.
type TransactOptions struct {
	// FenceTable and FenceKey name an item that keeps the greatest number for all items of the
	// transaction. The transaction must not write this item otherwise. The first transaction
	// makes it. This needs the permission dynamodb:UpdateItem on it.
	FenceTable string
	FenceKey   map[string]types.AttributeValue
}

// mostItems is how many DynamoDB takes in a transaction.
const mostItems = 100

// Transact makes a transaction if token is admitted. Each item is its own fence, as with [Put],
// [Update] and [Delete], unless opts name another item as the fence for all. A ConditionCheck is
// fenced too, but keeps no number. Opts may be nil. Errors are those of Put. Transact does not
// change in.
func Transact(ctx context.Context, client Client, token fence.Token, in *dynamodb.TransactWriteItemsInput, attribute string, opts *TransactOptions) (*dynamodb.TransactWriteItemsOutput, error) {
	f, err := newFencing(token, attribute)
	if err != nil {
		return nil, err
	}
	var o TransactOptions
	if opts != nil {
		o = *opts
	}
	transaction := *in
	if transaction.TransactItems, err = f.items(in.TransactItems, o); err != nil {
		return nil, err
	}
	out, err := client.TransactWriteItems(ctx, &transaction, dynamoproof.Required)
	return out, f.stale(err)
}

// items is a transaction's items with the fence.
func (f *fencing) items(was []types.TransactWriteItem, o TransactOptions) ([]types.TransactWriteItem, error) {
	items := slices.Clone(was)
	fenced := items
	switch {
	case o.FenceTable == "" && len(o.FenceKey) == 0:
	case o.FenceTable == "" || len(o.FenceKey) == 0:
		return nil, errors.New("fencedynamo: the fence item has no table or no key: set both FenceTable and FenceKey")
	case len(items) >= mostItems:
		return nil, fmt.Errorf("fencedynamo: the transaction has %d items, and DynamoDB takes %d, with the fence item: make it smaller", len(items), mostItems)
	default:
		items = append(items, types.TransactWriteItem{Update: &types.Update{TableName: &o.FenceTable, Key: o.FenceKey}})
		fenced = items[len(items)-1:]
	}
	for i := range fenced {
		switch item := &fenced[i]; {
		case item.Put != nil:
			p := *item.Put
			p.Item = with(p.Item, f.attribute, f.number)
			f.add(&p.ConditionExpression, &p.ExpressionAttributeNames, &p.ExpressionAttributeValues, &p.ReturnValuesOnConditionCheckFailure)
			item.Put = &p
		case item.Update != nil:
			u := *item.Update
			u.UpdateExpression = joined(u.UpdateExpression)
			f.add(&u.ConditionExpression, &u.ExpressionAttributeNames, &u.ExpressionAttributeValues, &u.ReturnValuesOnConditionCheckFailure)
			item.Update = &u
		case item.Delete != nil:
			d := *item.Delete
			f.add(&d.ConditionExpression, &d.ExpressionAttributeNames, &d.ExpressionAttributeValues, &d.ReturnValuesOnConditionCheckFailure)
			item.Delete = &d
		case item.ConditionCheck != nil:
			c := *item.ConditionCheck
			f.add(&c.ConditionExpression, &c.ExpressionAttributeNames, &c.ExpressionAttributeValues, &c.ReturnValuesOnConditionCheckFailure)
			item.ConditionCheck = &c
		default:
			return nil, errors.New("fencedynamo: the transaction's item is empty: give it a Put, Update, Delete or ConditionCheck")
		}
	}
	return items, nil
}

// setClause finds the keyword of the SET clause, in either case. It is a reserved word:
// an attribute of that name has a placeholder, which begins with # or :.
var setClause = regexp.MustCompile(`(?i)(?:^|[^\w#:.])set\s`)

// joined is an update expression that sets the number as well. There may be one SET
// clause, wherever it is.
func joined(was *string) *string {
	const assignment = nameMark + " = " + valueMark
	expression := aws.ToString(was)
	if at := setClause.FindStringIndex(expression); at != nil {
		return aws.String(expression[:at[1]] + assignment + ", " + expression[at[1]:])
	}
	return aws.String(strings.TrimSpace("SET " + assignment + " " + expression))
}

// fencing is what the fence adds to a request.
type fencing struct {
	token     fence.Token
	attribute string
	number    types.AttributeValue // the token's
}

func newFencing(token fence.Token, attribute string) (*fencing, error) {
	if err := token.Check(token.Election); err != nil {
		return nil, err
	}
	if attribute == "" {
		return nil, errors.New("fencedynamo: the attribute that keeps the number has no name")
	}
	return &fencing{token, attribute, &types.AttributeValueMemberN{Value: strconv.FormatUint(uint64(token.Number), 10)}}, nil
}

// add adds the fence to a condition and its placeholders, without changing the caller's
// maps, and has DynamoDB return the item that fails it.
func (f *fencing) add(was **string, names *map[string]string, values *map[string]types.AttributeValue, failed *types.ReturnValuesOnConditionCheckFailure) {
	c := condition
	if e := aws.ToString(*was); e != "" {
		c += " AND (" + e + ")"
	}
	*was, *names, *values = &c, with(*names, nameMark, f.attribute), with(*values, valueMark, f.number)
	*failed = types.ReturnValuesOnConditionCheckFailureAllOld
}

func with[V any](m map[string]V, key string, v V) map[string]V {
	c := make(map[string]V, len(m)+1)
	maps.Copy(c, m)
	c[key] = v
	return c
}

// stale is err, with what it means if DynamoDB refused the condition of a write, or of one in
// a transaction: if no item's number is greater than the token's, a condition of the caller's
// own has failed.
func (f *fencing) stale(err error) error {
	var failed *types.ConditionalCheckFailedException
	var cancelled *types.TransactionCanceledException
	var items []map[string]types.AttributeValue
	if errors.As(err, &failed) {
		items = append(items, failed.Item)
	}
	if errors.As(err, &cancelled) {
		for _, r := range cancelled.CancellationReasons {
			if aws.ToString(r.Code) == "ConditionalCheckFailed" {
				items = append(items, r.Item)
			}
		}
	}
	if len(items) == 0 {
		return err
	}
	var greatest uint64
	for _, item := range items {
		if n, is := item[f.attribute].(*types.AttributeValueMemberN); is {
			if seen, err := strconv.ParseUint(n.Value, 10, 64); err == nil {
				greatest = max(greatest, seen)
			}
		}
	}
	if greatest > uint64(f.token.Number) {
		return fmt.Errorf("fencedynamo: %w (%w)", &fence.StaleError{Token: f.token, Greatest: leaderelection.ElectionNumber(greatest)}, err)
	}
	return fmt.Errorf("fencedynamo: under %v: %w (%w)", f.token, fence.ErrNotWritten, err)
}

// Verify returns an error if table cannot keep fences in attribute:
//
//   - a global table whose regions each decide conditions by themselves;
//   - a table whose time to live uses that attribute;
//   - a table on a server that is not Amazon's and takes no notice of conditions.
//
// Call it at set-up, or when a leadership begins. It needs the permissions dynamodb:DescribeTable
// and dynamodb:DescribeTimeToLive. On a server that is not Amazon's it also needs DeleteItem: it
// deletes an item that does not exist.
func Verify(ctx context.Context, client *dynamodb.Client, table, attribute string) error {
	failed := func(err error) error {
		return fmt.Errorf("fencedynamo: verifying table %q: %w", table, redact.Error(err))
	}
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table}, dynamoproof.Required)
	if err == nil && out.Table == nil {
		err = errors.New("the answer does not describe the table")
	}
	if err != nil {
		return failed(err)
	}
	if where := dynamoproof.Regions(out.Table); where != "" {
		return failed(fmt.Errorf("%s, where a deposed leader in another region could write: %s", where, dynamoproof.OneRegion))
	}
	life, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &table}, dynamoproof.Required)
	var api smithy.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode() == "UnknownOperationException": // an emulator's: nothing expires there
	case err != nil:
		return failed(err)
	case life.TimeToLiveDescription != nil && aws.ToString(life.TimeToLiveDescription.AttributeName) == attribute:
		return failed(fmt.Errorf("its time to live uses the fence's attribute %q: DynamoDB would delete each item with its fence", attribute))
	}
	if client.Options().BaseEndpoint == nil {
		return nil
	}
	key := map[string]types.AttributeValue{}
	for _, k := range out.Table.KeySchema {
		key[aws.ToString(k.AttributeName)] = nobodys(out.Table.AttributeDefinitions, aws.ToString(k.AttributeName))
	}
	_, err = client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &table, Key: key, ConditionExpression: aws.String("attribute_exists(#k)"),
		ExpressionAttributeNames: map[string]string{"#k": aws.ToString(out.Table.KeySchema[0].AttributeName)},
	}, dynamoproof.Required)
	var refused *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &refused):
		return nil
	case err == nil:
		err = errors.New("the server has accepted a write whose condition does not hold: it takes no notice of conditions, so it cannot keep out a deposed leader. Use another server")
	}
	return failed(err)
}

// nobodys is a value that no item has in this attribute of the table's key.
func nobodys(all []types.AttributeDefinition, name string) types.AttributeValue {
	text := rand.Text()
	for _, a := range all {
		switch {
		case aws.ToString(a.AttributeName) != name:
		case a.AttributeType == types.ScalarAttributeTypeN:
			return &types.AttributeValueMemberN{Value: "-0.8716253948271650394857261"}
		case a.AttributeType == types.ScalarAttributeTypeB:
			return &types.AttributeValueMemberB{Value: []byte(text)}
		}
	}
	return &types.AttributeValueMemberS{Value: text}
}
