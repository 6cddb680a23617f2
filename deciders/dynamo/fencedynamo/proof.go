package fencedynamo

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/c8e606e4/leaderelection/deciders/dynamo/internal/dynamoproof"
)

// proved makes an answer that is not from DynamoDB an error.
func proved(o *dynamodb.Options) {
	o.DisableValidateResponseChecksum = false
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("leaderelection:proof", prove), middleware.After)
	})
}

func prove(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	out, metadata, err := next.HandleDeserialize(ctx, in)
	if err != nil {
		return out, metadata, err
	}
	answer, ok := out.RawResponse.(*smithyhttp.Response)
	if !ok {
		return out, metadata, fmt.Errorf("a %T: %w", out.RawResponse, dynamoproof.ErrNotDynamoDB)
	}
	if err := dynamoproof.Check(answer.Response); err != nil {
		return out, metadata, &smithyhttp.ResponseError{Response: answer, Err: err}
	}
	return out, metadata, nil
}
