/*
Package fencedynamo fences writes to DynamoDB: the check is the write's condition
expression, which DynamoDB decides together with the write.

	input := &dynamodb.PutItemInput{TableName: &table, Item: item}
	if err := fencedynamo.FencePut(input, token, "fence"); err != nil { ... }
	_, err := client.PutItem(ctx, input)
	if err = fencedynamo.Stale(err, token); errors.Is(err, fence.ErrStale) { ... }

The item keeps the greatest number seen in an attribute. Items fence themselves one
by one: one that the new leader has not written yet takes an old leader's write.
For a fence before several items, write them in one TransactWriteItems together
with an update of an item that is the fence.

A fenced write costs what the write costs; a refused one as well.
*/
package fencedynamo

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
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

// FenceUpdate is FencePut for an update; in's UpdateExpression must have one SET
// clause at its beginning, or none at all, and the number joins it.
func FenceUpdate(in *dynamodb.UpdateItemInput, token fence.Token, attribute string) error {
	number, err := value(token, attribute)
	if err != nil {
		return err
	}
	set := "SET " + nameMark + " = " + valueMark
	switch e := aws.ToString(in.UpdateExpression); {
	case e == "":
	case len(e) > 4 && e[:4] == "SET ":
		set += ", " + e[4:]
	default:
		set += " " + e
	}
	in.UpdateExpression = &set
	in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues =
		fenced(in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, attribute, number)
	return nil
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

// Stale returns err, as a *fence.StaleError where DynamoDB refused the condition.
// Only for writes whose condition is the fence alone: a refusal does not say which
// part of a condition failed.
func Stale(err error, token fence.Token) error {
	var refused *types.ConditionalCheckFailedException
	if !errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("fencedynamo: %w (%w)", &fence.StaleError{Token: token, Greatest: leaderelection.NoElections}, err)
}
