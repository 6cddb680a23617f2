// Package dynamoproof tells DynamoDB's answers from those of something else: the
// SDK takes any answer of status 200 for a success, also an empty one.
package dynamoproof

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// ErrNotDynamoDB says that something else than DynamoDB answered. It may pass.
var ErrNotDynamoDB = errors.New("the answer is not from DynamoDB, whose answers have a request id and, if they tell of a success, a checksum: correct the endpoint, or see what stands before it")

// Require is an option for a client, or for one request: an answer that lacks what
// all answers of DynamoDB have is an error that wraps ErrNotDynamoDB. A checksum
// that is there is compared by the SDK.
func Require(o *dynamodb.Options) {
	o.DisableValidateResponseChecksum = false
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("leaderelection:proof", check), middleware.After)
	})
}

func check(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	out, metadata, err := next.HandleDeserialize(ctx, in)
	if err != nil {
		return out, metadata, err
	}
	answer, ok := out.RawResponse.(*smithyhttp.Response)
	if !ok {
		return out, metadata, fmt.Errorf("a %T: %w", out.RawResponse, ErrNotDynamoDB)
	}
	success := answer.StatusCode >= 200 && answer.StatusCode < 300
	if answer.Header.Get("X-Amzn-Requestid") == "" || success && answer.Header.Get("X-Amz-Crc32") == "" {
		err = &smithyhttp.ResponseError{Response: answer, Err: fmt.Errorf("%w (its status is %s)", ErrNotDynamoDB, answer.Status)}
	}
	return out, metadata, err
}
