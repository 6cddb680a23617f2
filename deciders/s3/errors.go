package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/redact"
)

// ready says what keeps a call from being made.
func (d *Decider) ready(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return d.wrong
}

// permanent is an error of our own that no retry can cure.
func permanent(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), leaderelection.ErrPermanent)
}

// errNoETag may pass, where something on the way to the server answered.
var errNoETag = errors.New("the answer has no ETag: it is not from an S3 server, or from one that cannot decide an election")

// isMissing says whether a read found that there is no object. A 404 alone does
// not say so: a proxy may have said it.
func isMissing(err error) bool {
	code, _ := parse(err)
	return code == "NoSuchKey"
}

// isRefused says whether a conditional write was refused because of its
// condition.
func isRefused(err error) bool {
	switch code, status := parse(err); {
	case status == http.StatusPreconditionFailed, code == "PreconditionFailed":
		return true
	case code == "NoSuchKey": // If-Match, and the object was deleted
		return true
	case code == "ConditionalRequestConflict", code == "OperationAborted": // 409: read, and try again
		return true
	}
	return false
}

// parse returns the code and the HTTP status of an error that the server sent;
// the zero values where it sent none. The code is empty where something on the way
// answered: the server's own errors have one. (Without it the SDK makes one up, and a
// message, of the status.)
func parse(err error) (code string, status int) {
	if err == nil {
		return "", 0
	}
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorMessage() != http.StatusText(status) {
		code = api.ErrorCode()
	}
	return code, status
}

// failed says what was being done, where, and what to do about it.
func (d *Decider) failed(ctx context.Context, doing string, err error) error {
	err = redact.Error(err) // a transport's has the whole URL
	if ended := ctx.Err(); ended != nil {
		// Whatever the client made of it, the reason is the caller's own.
		if !errors.Is(err, ended) {
			err = errors.Join(err, ended)
		}
		return fmt.Errorf("leaderelection/s3: %s %s: %w", doing, d.place, err)
	}
	if errors.Is(err, leaderelection.ErrPermanent) {
		return fmt.Errorf("leaderelection/s3: %s %s: %w", doing, d.place, err)
	}
	advice, forGood := judge(err)
	if advice != "" {
		err = fmt.Errorf("%s (%w)", advice, err)
	}
	if forGood {
		err = fmt.Errorf("%w: %w", err, leaderelection.ErrPermanent)
	}
	return fmt.Errorf("leaderelection/s3: %s %s: %w", doing, d.place, err)
}

// keyUnusable is what S3 says of a KMS key that no retry helps. Others of KMS pass:
// its throttling, and its own troubles.
var keyUnusable = []string{
	"KMS.AccessDeniedException", "KMS.DisabledException", "KMS.IncorrectKeyException", "KMS.InvalidArnException", "KMS.InvalidKeyUsageException",
	"KMS.KMSInvalidKeyUsageException", "KMS.KMSInvalidStateException", "KMS.NotFoundException",
}

// judge says what to do about an error of the client, and whether no retry can
// cure it. What it does not know may pass.
func judge(err error) (advice string, forGood bool) {
	if strings.Contains(err.Error(), "endpoint rule error") { // which has no type of its own
		return "bucket, region and endpoint do not fit together: correct the bucket's name, or set AWS_REGION", true
	}
	if strings.Contains(err.Error(), "get credentials: ") { // nor has this; an instance's role may yet come
		return "the client has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role", false
	}
	code, status := parse(err)
	if code == "" {
		return "", false // something on the way said it
	}
	if retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == aws.TrueTernary {
		return "", false
	}
	switch code {
	case "NoSuchBucket":
		return "there is no such bucket: create it, or correct its name", true
	case "InvalidBucketName", "InvalidBucketNameException", "InvalidArgument", "InvalidURI", "KeyTooLongError", "XMinioInvalidObjectName":
		return "the server does not allow this name or option", true
	case "AccessDenied", "AllAccessDisabled", "AccountProblem", "NotSignedUp", "MethodNotAllowed":
		return "the credentials lack a permission: s3:GetObject and s3:PutObject on the object are needed, s3:ListBucket on the bucket (else a missing object is refused, too), and the use of its KMS key", true
	case "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired", "UnrecognizedClientException", "InvalidSecurity", "CredentialsNotSupported":
		return "the server does not know these credentials: correct them", true
	case "SignatureDoesNotMatch":
		return "the secret key does not fit the access key: correct the credentials", true
	case "ExpiredToken", "ExpiredTokenException":
		return "the credentials have expired: renew them", true
	case "RequestTimeTooSkewed", "RequestExpired":
		return "this machine's clock is off: correct it", false // the client learns the offset, too
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "IncorrectEndpoint", "InvalidRegion":
		return "the bucket is in another region: set the client's region to it", true
	case "NotImplemented":
		return "the server does not implement conditional writes: it cannot decide an election", true
	case "InvalidObjectState":
		return "the object has been archived: restore it, and exempt it from lifecycle rules", true
	case "InvalidRequest", "MissingContentMD5", "InvalidEncryptionAlgorithmError", "InvalidStorageClass", "AccessControlListNotSupported",
		"MalformedACLError", "UnsupportedArgument", "EntityTooLarge", "InvalidTag":
		return "the server does not take the request as it is: see Options", true
	}
	switch {
	case slices.Contains(keyUnusable, code):
		return "the KMS key cannot be used", true
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return "access is refused", true
	case status == http.StatusMovedPermanently:
		return "the bucket is in another region: set the client's region to it", true
	}
	return "", false
}
