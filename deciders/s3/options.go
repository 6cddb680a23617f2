package s3

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/c8e606e4/leaderelection/deciders/s3/internal/ssec"
)

// Options says how to write the object, and how the server differs from Amazon's. The zero value is
// right for Amazon and for most servers.
type Options struct {
	// ACL, StorageClass, ServerSideEncryption and SSEKMSKeyID are those of each
	// PutObject. Empty: as the bucket has it, which is best for most.
	ACL                  types.ObjectCannedACL
	StorageClass         types.StorageClass
	ServerSideEncryption types.ServerSideEncryption
	SSEKMSKeyID          string
	// SSECustomerKey is a key of your own, of 32 bytes, that the server encrypts the object
	// with and does not keep (SSE-C). Each candidate and observer needs it to read the record.
	// It is sent with each request, so only by https. Each write is read back. Empty: none.
	SSECustomerKey []byte
	// Metadata is metadata of the object, for people: names of letters, digits, "-", "_" and
	// ".", values in printable ASCII, 2 KB in all.
	Metadata map[string]string
	// Tags are the object's tags, at most 10, with keys of 1 to 128 letters and values of up to
	// 256. They need the permission s3:PutObjectTagging.
	Tags map[string]string
	// RequestPayer "requester" makes the account of these credentials pay for the requests. A
	// bucket with Requester Pays demands this of everybody except its owner. Empty: the owner
	// pays.
	RequestPayer types.RequestPayer
	// ExpectedBucketOwner is the account that must own the bucket: a bucket of
	// that name in another account is refused with 403. Empty: any.
	ExpectedBucketOwner string
	// ChecksumAlgorithm makes the SDK add a checksum of this kind to each upload. Empty:
	// uploads have a Content-MD5, which each server knows, and which Object Lock accepts.
	// Directory buckets do not know it, so uploads to them have none.
	ChecksumAlgorithm types.ChecksumAlgorithm
	// OpaqueETags says that this server's ETags are not meant to be the MD5 of the content.
	// Without it they must be, as with Amazon and most servers, so that a response that was
	// changed on its way is noticed. You need not set it for directory buckets, SSE-KMS or
	// SSE-C: the Decider recognizes these.
	OpaqueETags bool
	// UnquotedETag sends If-Match without quotes around the ETag, for servers
	// that compare it as a bare string. Amazon, MinIO and R2 take it in quotes.
	UnquotedETag bool
}

func (o *Options) clone() Options {
	c := *o
	c.SSECustomerKey, c.Metadata, c.Tags = slices.Clone(o.SSECustomerKey), maps.Clone(o.Metadata), maps.Clone(o.Tags)
	return c
}

// check says what no server would take, or must not get. Endpoint is the client's, if it
// is known. What it says shows no key.
func (o *Options) check(endpoint string) error {
	if o.RequestPayer != "" && o.RequestPayer != types.RequestPayerRequester {
		return fmt.Errorf("RequestPayer is %q: it can be %q only", o.RequestPayer, types.RequestPayerRequester)
	}
	if len(o.SSECustomerKey) > 0 {
		if o.ServerSideEncryption != "" || o.SSEKMSKeyID != "" {
			return errors.New("SSECustomerKey does not go with ServerSideEncryption or SSEKMSKeyID: an object is encrypted in one way, so leave one of them out")
		}
		if err := ssec.Check(o.SSECustomerKey, endpoint); err != nil {
			return fmt.Errorf("SSECustomerKey %w", err)
		}
	}
	return errors.Join(checkMetadata(o.Metadata), checkTags(o.Tags))
}

func checkMetadata(metadata map[string]string) error {
	size := 0
	for name, value := range metadata {
		size += len(name) + len(value)
		token := strings.ContainsFunc(name, func(r rune) bool {
			return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r))
		})
		switch {
		case name == "" || token:
			return fmt.Errorf("the Metadata has the name %q: it may have letters, digits, '-', '_' and '.' only", name)
		case strings.TrimSpace(value) != value || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			return fmt.Errorf("the Metadata %q is %q: it may have printable ASCII only, and no blank at either end", name, value)
		}
	}
	if size > 2<<10 {
		return fmt.Errorf("the Metadata has %d bytes: S3 takes 2048", size)
	}
	return nil
}

func checkTags(tags map[string]string) error {
	if len(tags) > 10 {
		return fmt.Errorf("there are %d Tags: S3 takes 10", len(tags))
	}
	for key, value := range tags {
		switch {
		case key == "" || utf8.RuneCountInString(key) > 128 || utf8.RuneCountInString(value) > 256:
			return fmt.Errorf("the tag %q: a key has 1 to 128 letters, and a value up to 256", key)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return fmt.Errorf("the tag %q: what begins with aws: is Amazon's own", key)
		}
	}
	return nil
}

// tagging is the tags as a request has them.
func (o *Options) tagging() *string {
	values := url.Values{}
	for key, value := range o.Tags {
		values.Set(key, value)
	}
	return given(values.Encode())
}

// given is nil for what is left out.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
