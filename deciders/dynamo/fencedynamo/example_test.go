package fencedynamo_test

import (
	"context"
	"errors"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/c8e606e4/leaderelection/deciders/dynamo/fencedynamo"
	"github.com/c8e606e4/leaderelection/fence"
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
	if _, err = fencedynamo.Put(ctx, client, token, input, "fence"); errors.Is(err, fence.ErrStale) {
		log.Print("another one leads: nothing was written")
	}
}
