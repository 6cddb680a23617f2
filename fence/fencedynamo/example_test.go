package fencedynamo_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencedynamo"
)

// A whole write. Not run with the tests: it needs a table.
func Example() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	client := dynamodb.NewFromConfig(cfg)
	token := fence.Token{Election: "orders", Number: 7} // Gate.Token returns it
	input := &dynamodb.PutItemInput{TableName: aws.String("orders"), Item: map[string]types.AttributeValue{
		"id": &types.AttributeValueMemberS{Value: "17"}, "state": &types.AttributeValueMemberS{Value: "sent"},
	}}
	if err := fencedynamo.FencePut(input, token, "fence"); err != nil {
		log.Fatal(err)
	}
	_, err = client.PutItem(ctx, input, fencedynamo.Proved)
	if err = fencedynamo.Stale(err, token); errors.Is(err, fence.ErrStale) {
		log.Print("another one leads: nothing was written")
	}
}

// What an update becomes: the number is set along, on condition that it is not
// smaller than the one that is there.
func ExampleFenceUpdate() {
	input := &dynamodb.UpdateItemInput{
		UpdateExpression:          aws.String("SET #s = :s"),
		ConditionExpression:       aws.String("attribute_exists(id)"),
		ExpressionAttributeNames:  map[string]string{"#s": "state"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":s": &types.AttributeValueMemberS{Value: "sent"}},
	}
	err := fencedynamo.FenceUpdate(input, fence.Token{Election: "orders", Number: 7}, "fence")
	fmt.Println(err)
	fmt.Println(*input.UpdateExpression)
	fmt.Println(*input.ConditionExpression)
	fmt.Println(input.ExpressionAttributeNames["#leaderelectionFence"])
	// Output:
	// <nil>
	// SET #leaderelectionFence = :leaderelectionFence, #s = :s
	// (attribute_not_exists(#leaderelectionFence) OR #leaderelectionFence <= :leaderelectionFence) AND (attribute_exists(id))
	// fence
}

// What DynamoDB answers to a stale token, as the fence's error.
func ExampleStale() {
	token := fence.Token{Election: "orders", Number: 7}
	err := fencedynamo.Stale(&types.ConditionalCheckFailedException{}, token)
	fmt.Println(errors.Is(err, fence.ErrStale))
	fmt.Println(fencedynamo.Stale(nil, token))
	// Output:
	// true
	// <nil>
}
