package fencedynamo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/c8e606e4/leaderelection/deciders/dynamo/internal/dynamoproof"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

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
	if n := len(out.Table.Replicas); n > 0 && out.Table.MultiRegionConsistency != types.MultiRegionConsistencyStrong {
		return failed(fmt.Errorf("it is a global table with %d replicas and eventual consistency, where a deposed leader in another region could write: "+
			"use a table of one region, or one with multi-Region strong consistency", n))
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
