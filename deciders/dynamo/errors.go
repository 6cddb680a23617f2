package dynamo

import (
	"context"
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
	"github.com/c8e606e4/leaderelection/internal/dynamoproof"
	"github.com/c8e606e4/leaderelection/internal/redact"
)

// ready says what keeps a call from being made.
func (d *Decider) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return d.wrong
}

// permanent is an error of our own that no retry can cure.
func permanent(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), leaderelection.ErrPermanent)
}

// notOurs refuses an item.
func (d *Decider) notOurs(format string, args ...any) error {
	return fmt.Errorf("leaderelection/dynamo: the item at %s is no record of this library: %w; move it, or use another key", d.place, permanent(format, args...))
}

// errNotWritten may pass, if something on the way to DynamoDB answered.
var errNotWritten = errors.New("the answer does not repeat the version that was sent, so that it proves no write: correct the endpoint, or see what stands before it")

// refused is what WriteEntry returns for what UpdateItem returned.
func (d *Decider) refused(ctx context.Context, err error) error {
	var failed *types.ConditionalCheckFailedException
	if !errors.As(err, &failed) {
		return d.failed(ctx, "writing", err)
	}
	lost := &leaderelection.LostRaceError{Place: d.place, Err: err}
	if len(failed.Item) > 0 {
		current, unreadable := d.entry(failed.Item)
		if unreadable != nil {
			return unreadable // nothing was overwritten, and nothing will be
		}
		lost.Current = current
	}
	return lost
}

// failed says what was being done, where, and what to do about it.
func (d *Decider) failed(ctx context.Context, doing string, err error) error {
	err = redact.Error(err) // a transport's has the whole URL
	if ended := ctx.Err(); ended != nil {
		// Whatever the client made of it, the reason is the caller's own.
		if !errors.Is(err, ended) {
			err = errors.Join(err, ended)
		}
		return fmt.Errorf("leaderelection/dynamo: %s %s: %w", doing, d.place, err)
	}
	if errors.Is(err, leaderelection.ErrPermanent) {
		return fmt.Errorf("leaderelection/dynamo: %s %s: %w", doing, d.place, err)
	}
	advice, forGood := judge(err)
	if advice != "" {
		err = fmt.Errorf("%s (%w)", advice, err)
	}
	if forGood {
		err = fmt.Errorf("%w: %w", err, leaderelection.ErrPermanent)
	}
	return fmt.Errorf("leaderelection/dynamo: %s %s: %w", doing, d.place, err)
}

// judge says what to do about an error of the client, and whether no retry can
// cure it. What it does not know may pass.
func judge(err error) (advice string, forGood bool) {
	if errors.Is(err, dynamoproof.ErrNotDynamoDB) || aws.TrueTernary == retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err) {
		return "", false
	}
	if strings.Contains(err.Error(), "endpoint rule error") { // which has no type of its own
		return "the client knows no endpoint: set AWS_REGION, or the region in its configuration", true
	}
	if strings.Contains(err.Error(), "get credentials: ") { // nor has this; an instance's role may yet come
		return "the client has no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role", false
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return "", false
	}
	switch code := api.ErrorCode(); code {
	case "ResourceNotFoundException":
		return "there is no such table in this account and region: create it, set CreateTable, or correct name, region or account", true
	case "ValidationException":
		if strings.Contains(strings.ToLower(api.ErrorMessage()), "key") {
			return "the table's key is not what the options say: PartitionKey and SortKey must name its key attributes, both strings", true
		}
		return "DynamoDB does not take the request as it is", true
	case "SerializationException", "UnknownOperationException", "ItemCollectionSizeLimitExceededException":
		return "DynamoDB does not take the request as it is", true
	case "AccessDeniedException", "AccessDenied":
		return "the credentials lack a permission: dynamodb:GetItem and dynamodb:UpdateItem are needed on the table (and the use of its KMS key)", true
	case "ExpiredTokenException", "ExpiredToken":
		return "the credentials have expired: renew them", true
	case "UnrecognizedClientException", "InvalidClientTokenId", "MissingAuthenticationTokenException", "MissingAuthenticationToken",
		"IncompleteSignatureException", "IncompleteSignature", "OptInRequired", "SubscriptionRequiredException":
		return "the credentials are not accepted in this region: correct them", true
	case "InvalidSignatureException", "SignatureDoesNotMatch":
		if strings.Contains(api.ErrorMessage(), "xpired") || strings.Contains(api.ErrorMessage(), "not yet current") {
			return "this machine's clock is off: correct it", false // the client learns the offset, too
		}
		return "the secret key does not fit the access key: correct the credentials", true
	case "RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture":
		return "this machine's clock is off: correct it", false
	case "InaccessibleEncryptionDateTimeException", "KMSAccessDeniedException", "KMSDisabledException", "KMSKeyNotFoundException":
		return "the KMS key of the table cannot be used", true
	}
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		switch answer.HTTPStatusCode() {
		case http.StatusUnauthorized, http.StatusForbidden:
			return "access is refused", true
		}
	}
	return "", false
}

var (
	tableName = regexp.MustCompile(`^[A-Za-z0-9_.-]{3,255}$`)
	tableARN  = regexp.MustCompile(`^arn:[a-z-]+:dynamodb:[a-z0-9-]*:[0-9]*:table/[A-Za-z0-9_.-]{3,255}$`)
)

// checkNames says what DynamoDB would not allow.
func (d *Decider) checkNames(table, key string, o *Options) error {
	switch {
	case !tableName.MatchString(table) && !tableARN.MatchString(table):
		return permanent("%q is no table name: it must have 3 to 255 of the characters a-z, A-Z, 0-9, '_', '-', '.', or be a table's ARN", table)
	case key == "" || len(key) > 2048:
		return permanent("the key has %d bytes: it must have 1 to 2048", len(key))
	case len(o.SortValue) > 1024:
		return permanent("the sort key has %d bytes: it may have 1024", len(o.SortValue))
	case o.SortKey == "" && o.SortValue != "":
		return permanent("there is a SortValue but no SortKey: name the table's sort key")
	case o.PartitionKey == o.SortKey:
		return permanent("PartitionKey and SortKey are both %q", o.SortKey)
	}
	for _, name := range [...]string{o.PartitionKey, o.SortKey} {
		if name == recordAttribute || name == versionAttribute {
			return permanent("no key attribute may be called %q: the record uses that name", name)
		}
	}
	return nil
}
