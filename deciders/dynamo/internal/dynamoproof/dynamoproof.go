// Package dynamoproof tells DynamoDB's answers from those of something else: the
// SDK takes any answer of status 200 for a success, also an empty one.
package dynamoproof

import (
	"errors"
	"fmt"
	"net/http"
)

// ErrNotDynamoDB says that something else than DynamoDB answered. It may pass.
var ErrNotDynamoDB = errors.New("the answer is not from DynamoDB, whose answers have a request id and, if they tell of a success, a checksum: correct the endpoint, or see what stands before it")

// Check returns an error that wraps ErrNotDynamoDB if an answer lacks what
// all answers of DynamoDB have. A checksum that is there is compared by the SDK.
func Check(answer *http.Response) error {
	success := answer.StatusCode >= 200 && answer.StatusCode < 300
	if answer.Header.Get("X-Amzn-Requestid") == "" || success && answer.Header.Get("X-Amz-Crc32") == "" {
		return fmt.Errorf("%w (its status is %s)", ErrNotDynamoDB, answer.Status)
	}
	return nil
}
