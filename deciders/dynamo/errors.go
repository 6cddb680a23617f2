package dynamo

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo/internal/dynamoproof"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// notOurs refuses an item.
func notOurs(format string, args ...any) error {
	return store.Wrong("the item is not a record of this library: %w; move it, or use another key", fmt.Errorf(format, args...))
}

// errNotWritten may pass, if something on the way to DynamoDB answered.
var errNotWritten = errors.New("the response does not repeat the version that was sent, so it does not prove the write: correct the endpoint, or check what is in front of it")

// refused is what Swap returns for what UpdateItem returned.
func (b *backend) refused(err error) error {
	var failed *types.ConditionalCheckFailedException
	switch {
	case !errors.As(err, &failed):
		return err
	case len(failed.Item) == 0:
		return &leaderelection.LostRaceError{Err: err}
	}
	current, unreadable := b.stored(failed.Item)
	if unreadable != nil {
		return unreadable // nothing was overwritten, and nothing will be
	}
	return &store.Refusal[token]{Current: current, Err: err}
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	v := judge(err)
	if v.Denied || v.Permanent { // a key and its secret may have been written one after the other
		b.distrusted()
	}
	return v
}

// judge says what to do about an error of the client, and whether no retry can
// cure it. What it does not know may pass.
func judge(err error) store.Verdict {
	if errors.Is(err, dynamoproof.ErrNotDynamoDB) || aws.TrueTernary == retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) {
		return store.Verdict{}
	}
	if strings.Contains(err.Error(), "endpoint rule error") { // which has no type of its own
		return store.Permanent("the client knows no endpoint: set AWS_REGION, or the region in its configuration")
	}
	if strings.Contains(err.Error(), "get credentials: ") { // nor has this; an instance's role may yet come
		return store.Passing("the client has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role")
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return store.Verdict{}
	}
	switch code := api.ErrorCode(); code {
	case "ResourceNotFoundException":
		return store.Permanent("there is no such table in this account and region: create it, set CreateTable (create=true in an address), or correct name, region or account")
	case "ValidationException":
		if strings.Contains(strings.ToLower(api.ErrorMessage()), "key") {
			return store.Permanent("the table's key is not what the options say: PartitionKey and SortKey must name its key attributes, both strings")
		}
		return store.Permanent("DynamoDB does not take the request as it is")
	case "SerializationException", "UnknownOperationException", "ItemCollectionSizeLimitExceededException":
		return store.Permanent("DynamoDB does not take the request as it is")
	case "AccessDeniedException", "AccessDenied":
		return store.Denied("candidates need the permissions dynamodb:GetItem and dynamodb:UpdateItem on the table (and the use of its KMS key), and no policy may deny them")
	case "ExpiredTokenException", "ExpiredToken":
		return store.Denied("the credentials have expired: renew them")
	case "UnrecognizedClientException", "InvalidClientTokenId", "MissingAuthenticationTokenException", "MissingAuthenticationToken",
		"IncompleteSignatureException", "IncompleteSignature", "OptInRequired", "SubscriptionRequiredException":
		return store.Denied("the credentials are not accepted in this region: correct them")
	case "InvalidSignatureException", "SignatureDoesNotMatch":
		if strings.Contains(api.ErrorMessage(), "xpired") || strings.Contains(api.ErrorMessage(), "not yet current") {
			return store.Passing("this machine's clock is off: correct it") // the client learns the offset, too
		}
		return store.Permanent("the secret key does not fit the access key, or something on the way changes requests")
	case "RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture":
		return store.Passing("this machine's clock is off: correct it")
	case "InaccessibleEncryptionDateTimeException", "KMSAccessDeniedException", "KMSDisabledException", "KMSKeyNotFoundException":
		return store.Permanent("the KMS key of the table cannot be used")
	}
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		switch answer.HTTPStatusCode() {
		case http.StatusUnauthorized, http.StatusForbidden:
			return store.Denied("access is refused")
		}
	}
	return store.Verdict{}
}

// tableOrARN is a table's name, or its ARN, which ends with the name. The name's length is looked
// at apart: as {3,255} it would be most of what the start of a program costs that links this.
var tableOrARN = regexp.MustCompile(`^(?:arn:[a-z-]+:dynamodb:[a-z0-9-]*:[0-9]*:table/)?([A-Za-z0-9_.-]+)$`)

// isTable reports whether name is a table's name, or its ARN.
func isTable(name string) bool {
	found := tableOrARN.FindStringSubmatch(name)
	return found != nil && len(found[1]) >= 3 && len(found[1]) <= 255
}

// checkNames says what DynamoDB would not allow.
func checkNames(name, key string, o *Options) error {
	switch {
	case !isTable(name):
		return store.Wrong("%q is not a table name: it must have 3 to 255 of the characters a-z, A-Z, 0-9, '_', '-', '.', or be a table's ARN", name)
	case key == "" || len(key) > 2048:
		return store.Wrong("the key has %d bytes: it must have 1 to 2048", len(key))
	case len(o.SortValue) > 1024:
		return store.Wrong("the sort key has %d bytes: it may have 1024", len(o.SortValue))
	case o.SortKey == "" && o.SortValue != "":
		return store.Wrong("there is a SortValue but no SortKey: name the table's sort key")
	case o.PartitionKey == o.SortKey:
		return store.Wrong("PartitionKey and SortKey are both %q", o.SortKey)
	}
	for _, name := range [...]string{o.PartitionKey, o.SortKey} {
		if name == recordAttribute || name == versionAttribute {
			return store.Wrong("no key attribute may be called %q: the record uses that name", name)
		}
	}
	return nil
}
