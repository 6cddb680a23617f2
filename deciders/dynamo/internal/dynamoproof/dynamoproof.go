// Package dynamoproof tells DynamoDB's answers from those of something else: the
// SDK takes any answer of status 200 for a success, also an empty one. And it tells a table whose
// conditions hold in all of its regions from others.
package dynamoproof

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
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

// OneRegion is what to do about what Regions says.
const OneRegion = "use a table of one region, or one with multi-Region strong consistency"

// Regions says that the table is one of several regions that decide conditions each for itself;
// empty: it is not. Of a table of the version 2017.11.29 only the version tells, and such a
// table is never strongly consistent.
func Regions(table *types.TableDescription) string {
	n, version := len(table.Replicas), aws.ToString(table.GlobalTableVersion)
	switch {
	case table.MultiRegionConsistency == types.MultiRegionConsistencyStrong, n == 0 && version == "":
		return ""
	case n == 0:
		return "the table is a global table of the version " + version + " with eventual consistency"
	}
	return fmt.Sprintf("the table is a global table with %d replicas and eventual consistency", n)
}
