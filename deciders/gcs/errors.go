package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/storage"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	v := judge(err)
	if v.Denied {
		b.distrusted()
	}
	if e := (*googleapi.Error)(nil); v == passing && errors.As(err, &e) {
		v.After = store.RetryAfter(e.Header.Get("Retry-After"))
	}
	return v
}

var (
	passing = store.Verdict{} // may work the next time
	missing = store.Permanent("there is no such bucket: make it, or correct its name")
	refused = store.Denied("not permitted: storage.objects.get, .create, .delete and .list are needed on the bucket (the role Storage Object User has them)")
	unknown = store.Denied("the credentials are not accepted: they are missing, wrong or expired")
	invalid = store.Permanent("the store does not allow that: check the names and options")
	policy  = store.Permanent("a policy of the organisation forbids it: the error names the constraint")
)

// judge says what err means, whichever transport the client uses.
func judge(err error) store.Verdict {
	// The SDK's own time was up: whatever else err says is a consequence.
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return passing
	}
	var answer *googleapi.Error
	if errors.As(err, &answer) {
		return ofHTTP(answer)
	}
	var noToken *oauth2.RetrieveError
	if errors.As(err, &noToken) {
		return ofTokenServer(noToken.Response)
	}
	var noAuth *auth.Error
	if errors.As(err, &noAuth) {
		return ofTokenServer(noAuth.Response)
	}
	if strings.Contains(err.Error(), "unexpected HTTP status code") {
		return passing // from which gRPC makes a code of its own: a proxy said it
	}
	switch status.Code(err) {
	case codes.FailedPrecondition:
		return store.Lost
	case codes.NotFound:
		return missing
	case codes.PermissionDenied:
		return refused
	case codes.Unauthenticated:
		return unknown
	case codes.InvalidArgument, codes.Unimplemented:
		return invalid
	}
	return passing
}

// quota is rateLimitExceeded, userRateLimitExceeded, quotaExceeded, dailyLimitExceeded.
var quota = regexp.MustCompile(`(?i)(limit|quota)exceeded$`)

func ofHTTP(e *googleapi.Error) store.Verdict {
	if len(reasons(e)) == 0 && e.Message == "" {
		return passing // something on the way said it: Google's own errors have a reason
	}
	switch e.Code {
	case http.StatusPreconditionFailed:
		if strings.Contains(e.Body, "constraints/") {
			return policy
		}
		return store.Lost
	case http.StatusNotFound:
		return missing
	case http.StatusUnauthorized:
		return unknown
	case http.StatusForbidden:
		for _, r := range reasons(e) {
			switch {
			case quota.MatchString(r): // some say 403, others 429
				return passing
			case r == "retentionPolicyNotMet" || r == "objectUnderActiveHold":
				return store.Denied("the bucket keeps objects from being replaced (" + r + "): a record is replaced every few seconds, so use a bucket without a retention policy or holds")
			}
		}
		return refused
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return passing
	}
	if e.Code >= 400 && e.Code < 500 {
		return invalid
	}
	return passing
}

// ofTokenServer: a token server that refuses the credentials will do so again;
// one that cannot be reached or is in trouble may recover.
func ofTokenServer(r *http.Response) store.Verdict {
	if r != nil && (r.StatusCode == http.StatusBadRequest || r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden) {
		return unknown
	}
	return passing
}

// reasons are the words by which Google's errors of one status are told apart.
func reasons(err error) (words []string) {
	var e *googleapi.Error
	if !errors.As(err, &e) {
		return nil
	}
	items := e.Errors
	if len(items) == 0 { // of a download the SDK hands on the text, JSON or XML
		var body struct {
			Error struct{ Errors []googleapi.ErrorItem }
		}
		if json.Unmarshal([]byte(e.Body), &body) == nil {
			items = body.Error.Errors
		} else if _, after, found := strings.Cut(e.Body, "<Code>"); found {
			code, _, _ := strings.Cut(after, "<")
			items = []googleapi.ErrorItem{{Reason: code}}
		}
	}
	for _, item := range items {
		words = append(words, item.Reason)
	}
	return words
}

// notFound reports whether a download was answered by 404, by whomever.
func notFound(err error) bool { return errors.Is(err, storage.ErrObjectNotExist) }

// isAbsent reports whether Cloud Storage itself says that there is no object, or no
// bucket: it does not tell the two apart. A bare 404 may be a proxy's.
func isAbsent(err error) bool {
	var answer *googleapi.Error
	if errors.As(err, &answer) {
		return answer.Code == http.StatusNotFound && slices.Contains(reasons(answer), "notFound")
	}
	return status.Code(err) == codes.NotFound
}

// checkNames says what the store will never allow. It leaves the finer points to
// the store.
func checkNames(bucket, object string) error {
	wrong := func(what, name, why string) error {
		return store.Wrong("the %s name %q %s", what, name, why)
	}
	switch {
	case len(bucket) < 3 || len(bucket) > 222:
		return wrong("bucket", bucket, "must have 3 to 222 characters")
	case strings.ContainsFunc(bucket, func(r rune) bool {
		return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
	}):
		return wrong("bucket", bucket, "may have only a-z, 0-9, '-', '_' and '.'")
	case object == "" || len(object) > 1024:
		return wrong("object", object, "must have 1 to 1024 bytes")
	case !utf8.ValidString(object):
		return wrong("object", object, "is not UTF-8")
	case strings.ContainsAny(object, "\r\n"):
		return wrong("object", object, "must not have a line break")
	case object == "." || object == "..":
		return wrong("object", object, "is reserved")
	}
	return nil
}
