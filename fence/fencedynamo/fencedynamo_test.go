package fencedynamo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencedynamo"
	"github.com/c8e606e4/leaderelection/fence/internal/fencetest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func TestFence(t *testing.T) {
	client := dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(stores.Dynalite(t)), Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	})
	table := aws.String("orders")
	if _, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	}); err != nil {
		t.Fatal(err)
	}
	soon := func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay, o.MaxDelay = 50*time.Millisecond, time.Second }
	if err := dynamodb.NewTableExistsWaiter(client, soon).Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: table}, time.Minute); err != nil {
		t.Fatal(err)
	}
	key := map[string]types.AttributeValue{"id": text("7")}
	put := func(token fence.Token, state string) error {
		in := &dynamodb.PutItemInput{TableName: table, Item: map[string]types.AttributeValue{"id": text("7"), "state": text(state)}}
		if err := fencedynamo.FencePut(in, token, "fence"); err != nil {
			return err
		}
		_, err := client.PutItem(t.Context(), in)
		return fencedynamo.Stale(err, token)
	}
	update := func(token fence.Token, state, expression string) error {
		in := &dynamodb.UpdateItemInput{TableName: table, Key: key, UpdateExpression: &expression, ConditionExpression: aws.String("attribute_exists(id)"),
			ExpressionAttributeNames: map[string]string{"#s": "state"}, ExpressionAttributeValues: map[string]types.AttributeValue{":s": text(state)}}
		if expression == "REMOVE #s" {
			in.ExpressionAttributeValues = nil
		}
		if err := fencedynamo.FenceUpdate(in, token, "fence"); err != nil {
			return err
		}
		_, err := client.UpdateItem(t.Context(), in)
		return fencedynamo.Stale(err, token)
	}
	for i, c := range []struct {
		err  error
		want error
	}{
		{put(fencetest.Orders(9), "a"), nil}, {put(fencetest.Orders(9), "b"), nil}, {put(fencetest.Orders(8), "c"), fence.ErrStale},
		{put(fencetest.Orders(10), "d"), nil}, {put(fencetest.Orders(0), "e"), fence.ErrNoToken},
		{update(fencetest.Orders(9), "f", "SET #s = :s"), fence.ErrStale}, {update(fencetest.Orders(11), "g", "SET #s = :s"), nil},
		{put(fencetest.Orders(10), "h"), fence.ErrStale}, {update(fencetest.Orders(12), "", "REMOVE #s"), nil}, {put(fencetest.Orders(11), "i"), fence.ErrStale},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%d: %v, want %v", i, c.err, c.want)
		}
	}
	item, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := item.Item["fence"].(*types.AttributeValueMemberN); n == nil || n.Value != "12" || item.Item["state"] != nil {
		t.Errorf("the item is %v", item.Item)
	}
	if err := fencedynamo.FencePut(&dynamodb.PutItemInput{}, fencetest.Orders(1), ""); err == nil {
		t.Error("an attribute without a name is taken")
	}
}
