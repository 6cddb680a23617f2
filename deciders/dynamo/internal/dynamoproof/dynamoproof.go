// Package dynamoproof tells DynamoDB's answers from those of something else: the
// SDK takes any answer of status 200 for a success, also an empty one.
package dynamoproof

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// ErrNotDynamoDB says that something else than DynamoDB answered. It may pass.
var ErrNotDynamoDB = errors.New("the answer is not from DynamoDB, whose answers have a request id and, if they tell of a success, a checksum: correct the endpoint, or see what stands before it")

// Required is an option of a call. It makes an answer that is not from DynamoDB an error.
func Required(o *dynamodb.Options) {
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
		return out, metadata, fmt.Errorf("a %T: %w", out.RawResponse, ErrNotDynamoDB)
	}
	if err := check(answer.Response); err != nil {
		return out, metadata, &smithyhttp.ResponseError{Response: answer, Err: err}
	}
	return out, metadata, nil
}

// check returns an error that wraps ErrNotDynamoDB if an answer lacks what
// all answers of DynamoDB have. A checksum that is there is compared by the SDK.
func check(answer *http.Response) error {
	success := answer.StatusCode >= 200 && answer.StatusCode < 300
	if answer.Header.Get("X-Amzn-Requestid") == "" || success && answer.Header.Get("X-Amz-Crc32") == "" {
		return fmt.Errorf("%w (its status is %s)", ErrNotDynamoDB, answer.Status)
	}
	return nil
}
