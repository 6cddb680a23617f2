/*
Package fencedynamo fences writes to DynamoDB: the check is the write's condition
expression, which DynamoDB decides together with the write.

	input := &dynamodb.PutItemInput{TableName: &table, Item: item}
	if err := fencedynamo.FencePut(input, token, "fence"); err != nil { ... }
	_, err := client.PutItem(ctx, input, fencedynamo.Proved)
	if err = fencedynamo.Stale(err, token); errors.Is(err, fence.ErrStale) { ... }

The item keeps the greatest number seen in an attribute. Items fence themselves one
by one: one that the new leader has not written yet takes an old leader's write.
For a fence before several items write them in one transaction, which [FenceTransaction]
puts behind an item that is the fence:

	input := &dynamodb.TransactWriteItemsInput{TransactItems: items}
	if err := fencedynamo.FenceTransaction(input, token, "orders", fenceKey, "fence"); err != nil { ... }
	_, err := client.TransactWriteItems(ctx, input, fencedynamo.Proved)

Transactions of one leader that share a fence item must not run at the same time: DynamoDB
cancels all but one of those (TransactionConflict), which passes.

The SDK takes any answer of status 200 for a success, also the empty one of something
that stands before DynamoDB. [Proved] makes it an error.

A fenced write costs what the write costs; a refused one as well.

A fence is in the item. One that is deleted (by [FenceDelete] or time to live, too) takes
its fence along: an old leader can then write such an item anew. Where that matters delete
in a transaction behind a fence item, or mark items as deleted in place of that. A table that is restored brings older fences back: leaders deposed since then may
write such items again. After either, let the leader in office write each item before
anything relies on it. Giving up a request changes nothing at DynamoDB but that nobody
hears the answer: it happens as a whole or not at all, perhaps later.
*/
package fencedynamo

import (
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

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/dynamoproof"
)

// The placeholders that this package adds to expressions.
const (
	nameMark  = "#leaderelectionFence"
	valueMark = ":leaderelectionFence"
	condition = "(attribute_not_exists(" + nameMark + ") OR " + nameMark + " <= " + valueMark + ")"
)

// FencePut makes in a write that is refused where token is stale, and that keeps
// its number in attribute. A condition that in has already must hold as well.
func FencePut(in *dynamodb.PutItemInput, token fence.Token, attribute string) error {
	number, err := value(token, attribute)
	if err != nil {
		return err
	}
	in.Item = with(in.Item, attribute, number)
	in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues =
		fenced(in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, attribute, number)
	return nil
}

// FenceUpdate is FencePut for an update: the number joins what in's UpdateExpression
// sets, if it sets anything.
func FenceUpdate(in *dynamodb.UpdateItemInput, token fence.Token, attribute string) error {
	number, err := value(token, attribute)
	if err != nil {
		return err
	}
	in.UpdateExpression = aws.String(joined(aws.ToString(in.UpdateExpression)))
	in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues =
		fenced(in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, attribute, number)
	return nil
}

// FenceDelete makes in a delete that is refused where token is stale. The fence goes
// with the item: see the package's documentation. An item that is not there is no error.
func FenceDelete(in *dynamodb.DeleteItemInput, token fence.Token, attribute string) error {
	number, err := value(token, attribute)
	if err != nil {
		return err
	}
	in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues =
		fenced(in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, attribute, number)
	return nil
}

// mostItems is how many DynamoDB takes in a transaction.
const mostItems = 100

// FenceTransaction puts all of in behind one fence: the item with this key, which in does
// not write otherwise, keeps the greatest number in attribute. It is made by the first
// transaction. It needs dynamodb:UpdateItem on that item.
func FenceTransaction(in *dynamodb.TransactWriteItemsInput, token fence.Token, table string, key map[string]types.AttributeValue, attribute string) error {
	switch {
	case table == "" || len(key) == 0:
		return errors.New("fencedynamo: the item that is to be the fence has no table, or no key")
	case len(in.TransactItems) >= mostItems:
		return fmt.Errorf("fencedynamo: the transaction has %d items, and DynamoDB takes %d with the fence: make it smaller", len(in.TransactItems), mostItems)
	}
	item := types.TransactWriteItem{Update: &types.Update{TableName: &table, Key: key}}
	if err := FenceTransactItem(&item, token, attribute); err != nil {
		return err
	}
	in.TransactItems = append(slices.Clip(in.TransactItems), item)
	return nil
}

// FenceTransactItem fences one item of a transaction by itself, as FencePut, FenceUpdate
// and FenceDelete do. A ConditionCheck it fences, too, but that keeps no number.
func FenceTransactItem(item *types.TransactWriteItem, token fence.Token, attribute string) error {
	number, err := value(token, attribute)
	if err != nil {
		return err
	}
	switch {
	case item.Put != nil:
		p := item.Put
		p.Item = with(p.Item, attribute, number)
		p.ConditionExpression, p.ExpressionAttributeNames, p.ExpressionAttributeValues =
			fenced(p.ConditionExpression, p.ExpressionAttributeNames, p.ExpressionAttributeValues, attribute, number)
	case item.Update != nil:
		u := item.Update
		u.UpdateExpression = aws.String(joined(aws.ToString(u.UpdateExpression)))
		u.ConditionExpression, u.ExpressionAttributeNames, u.ExpressionAttributeValues =
			fenced(u.ConditionExpression, u.ExpressionAttributeNames, u.ExpressionAttributeValues, attribute, number)
	case item.Delete != nil:
		d := item.Delete
		d.ConditionExpression, d.ExpressionAttributeNames, d.ExpressionAttributeValues =
			fenced(d.ConditionExpression, d.ExpressionAttributeNames, d.ExpressionAttributeValues, attribute, number)
	case item.ConditionCheck != nil:
		c := item.ConditionCheck
		c.ConditionExpression, c.ExpressionAttributeNames, c.ExpressionAttributeValues =
			fenced(c.ConditionExpression, c.ExpressionAttributeNames, c.ExpressionAttributeValues, attribute, number)
	default:
		return errors.New("fencedynamo: the transaction's item is empty: give it a Put, Update, Delete or ConditionCheck")
	}
	return nil
}

// setClause finds the keyword of the SET clause, in either case. It is a reserved word:
// an attribute of that name has a placeholder, which begins with # or :.
var setClause = regexp.MustCompile(`(?i)(?:^|[^\w#:.])set\s`)

// joined is an update expression that sets the number as well. There may be one SET
// clause, wherever it is.
func joined(expression string) string {
	const assignment = nameMark + " = " + valueMark
	if at := setClause.FindStringIndex(expression); at != nil {
		return expression[:at[1]] + assignment + ", " + expression[at[1]:]
	}
	return strings.TrimSpace("SET " + assignment + " " + expression)
}

// value is the token's number as an attribute.
func value(token fence.Token, attribute string) (types.AttributeValue, error) {
	if err := token.Check(token.Election); err != nil {
		return nil, err
	}
	if attribute == "" {
		return nil, errors.New("fencedynamo: the attribute that keeps the number has no name")
	}
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(uint64(token.Number), 10)}, nil
}

// fenced adds the fence to a condition and its placeholders, without changing the
// caller's maps.
func fenced(was *string, names map[string]string, values map[string]types.AttributeValue, attribute string, number types.AttributeValue) (*string, map[string]string, map[string]types.AttributeValue) {
	c := condition
	if e := aws.ToString(was); e != "" {
		c += " AND (" + e + ")"
	}
	return &c, with(names, nameMark, attribute), with(values, valueMark, number)
}

func with[V any](m map[string]V, key string, v V) map[string]V {
	c := make(map[string]V, len(m)+1)
	maps.Copy(c, m)
	c[key] = v
	return c
}

// Proved is an option for the request, or for the client: an answer that is not from
// DynamoDB (it lacks a request id or a checksum) is an error, which leaves open whether
// anything was written.
func Proved(o *dynamodb.Options) { dynamoproof.Require(o) }

// Stale returns err, as a *fence.StaleError where DynamoDB refused the condition: of a
// write, or in a transaction. Only for writes, and transactions, that have no conditions
// but fences: a refusal does not say which part of a condition failed.
func Stale(err error, token fence.Token) error {
	var failed *types.ConditionalCheckFailedException
	var cancelled *types.TransactionCanceledException
	refused := errors.As(err, &failed)
	if errors.As(err, &cancelled) {
		refused = slices.ContainsFunc(cancelled.CancellationReasons, func(r types.CancellationReason) bool {
			return aws.ToString(r.Code) == "ConditionalCheckFailed"
		})
	}
	if !refused {
		return err
	}
	return fmt.Errorf("fencedynamo: %w (%w)", &fence.StaleError{Token: token, Greatest: leaderelection.NoElections}, err)
}
