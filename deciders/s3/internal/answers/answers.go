// Package answers says what the errors of an S3 server, or of its client, mean, and what the name of a
// bucket says of its answers.
package answers

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Directory reports whether it is the name of a directory bucket, or of an access point of one. Its ETags
// are random.
func Directory(bucket string) bool {
	return strings.HasSuffix(bucket, "--x-s3") || strings.HasSuffix(bucket, "--xa-s3")
}

// Missing reports whether a read found that there is no object. A 404 alone is not enough: it may
// be a proxy's.
func Missing(err error) bool { return code(err) == "NoSuchKey" }

// NoObject reports whether a look found that there is no object. Answers to a HEAD have no words: the SDK
// makes them up of the status.
func NoObject(err error) bool {
	var api smithy.APIError
	return status(err) == http.StatusNotFound && errors.As(err, &api) && (api.ErrorCode() == "NotFound" || api.ErrorCode() == "NoSuchKey")
}

// Forbidden reports whether the server refuses access.
func Forbidden(err error) bool { return status(err) == http.StatusForbidden }

// Deleted reports whether the answer says that the object has been deleted: a versioned
// bucket keeps a delete marker in its place.
func Deleted(err error) bool {
	var answer *awshttp.ResponseError
	return errors.As(err, &answer) && answer.HTTPResponse() != nil && answer.HTTPResponse().Header.Get("X-Amz-Delete-Marker") == "true"
}

// Refused reports whether a conditional write was refused because of its
// condition.
func Refused(err error) bool {
	switch code(err) {
	case "PreconditionFailed", "ConditionalRequestConflict", "OperationAborted": // the latter are 409: read, and try again
		return true
	case "NoSuchKey": // If-Match, and the object was deleted
		return true
	}
	return status(err) == http.StatusPreconditionFailed
}

// status is the HTTP status of an error that the server sent; else 0.
func status(err error) int {
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// code is that of an error that the server sent. It is empty where something on the way answered:
// the server's own errors have one. (Without it the SDK makes one up, and a message, of the status.)
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorMessage() != http.StatusText(status(err)) {
		return api.ErrorCode()
	}
	return ""
}

// keyUnusable is what S3 says of a KMS key that no retry helps. Others of KMS pass:
// its throttling, and its own troubles.
var keyUnusable = []string{
	"KMS.AccessDeniedException", "KMS.DisabledException", "KMS.IncorrectKeyException", "KMS.InvalidArnException", "KMS.InvalidKeyUsageException",
	"KMS.KMSInvalidKeyUsageException", "KMS.KMSInvalidStateException", "KMS.NotFoundException",
}

// ofChecksum is in what servers say that do not know the checksum of an upload. R2 names the header
// x-amz-checksum-crc32, B2 x-amz-sdk-checksum-algorithm; others name the trailer that has it, or its
// encoding.
var ofChecksum = regexp.MustCompile(`(?i)checksum|trailer|aws-chunked`)

// Judge says what to do about an error of the client, and whether a retry can help. Unknown errors
// count as temporary. Checksum says that the client was configured to add a checksum to writes.
func Judge(err error, checksum bool) store.Verdict {
	if strings.Contains(err.Error(), "endpoint rule error") { // which has no type of its own
		return store.Permanent("bucket, region and endpoint do not fit together: correct the bucket's name, or set AWS_REGION")
	}
	if strings.Contains(err.Error(), "get credentials: ") { // nor has this; an instance's role may yet come
		return store.Passing("the client has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role")
	}
	code, status := code(err), status(err)
	if code == "" {
		return store.Verdict{} // something on the way said it
	}
	if retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) == aws.TrueTernary {
		return store.Verdict{}
	}
	if unknown := ofChecksum.MatchString(err.Error()); code == "NotImplemented" && (unknown || checksum) || code == "InvalidArgument" && unknown {
		return store.Permanent("the server does not implement the checksum of the upload: leave out Options.ChecksumAlgorithm (checksum in an address). If it refuses without one, too, it does not implement conditional writes")
	}
	switch code {
	case "NoSuchBucket":
		return store.Permanent("there is no such bucket: create it, or correct its name")
	case "InvalidBucketName", "InvalidBucketNameException", "InvalidArgument", "InvalidURI", "KeyTooLongError", "XMinioInvalidObjectName":
		return store.Permanent("the server does not allow this name or option")
	case "AccessDenied", "AllAccessDisabled", "AccountProblem", "NotSignedUp", "MethodNotAllowed":
		return store.Denied("candidates need s3:GetObject and s3:PutObject on the object, s3:ListBucket on the bucket (without it a missing object is refused, too), and the use of its KMS key; no policy may deny them")
	case "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired", "UnrecognizedClientException", "InvalidSecurity", "CredentialsNotSupported":
		return store.Denied("the server does not know these credentials: correct them")
	case "SignatureDoesNotMatch":
		return store.Permanent("the secret key does not fit the access key, or something on the way changes requests")
	case "ExpiredToken", "ExpiredTokenException":
		return store.Denied("the credentials have expired: renew them")
	case "RequestTimeTooSkewed", "RequestExpired":
		return store.Passing("this machine's clock is off: correct it") // the client learns the offset, too
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "IncorrectEndpoint", "InvalidRegion":
		return store.Permanent("the bucket is in another region: set the client's region to it")
	case "NotImplemented":
		return store.Permanent("the server does not implement conditional writes: it cannot decide an election")
	case "InvalidObjectState":
		return store.Permanent("the object has been archived: restore it, and exempt it from lifecycle rules")
	case "InvalidRequest", "MissingContentMD5", "InvalidEncryptionAlgorithmError", "InvalidStorageClass", "AccessControlListNotSupported",
		"MalformedACLError", "UnsupportedArgument", "EntityTooLarge", "InvalidTag":
		return store.Permanent("the server does not take the request as it is: see Options")
	}
	switch {
	case slices.Contains(keyUnusable, code):
		return store.Permanent("the KMS key cannot be used")
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return store.Denied("access is refused")
	case status == http.StatusMovedPermanently:
		return store.Permanent("the bucket is in another region: set the client's region to it")
	}
	return store.Verdict{}
}
