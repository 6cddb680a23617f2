package s3

import (
	"fmt"
	"maps"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Options says how to write the object, and how the server differs from Amazon's. The zero value is
// right for Amazon and for most servers.
type Options struct {
	// ServerSideEncryption and SSEKMSKeyID are those of each PutObject, for a bucket whose
	// policy refuses writes without them. Empty: as the bucket has it, which is best for most.
	ServerSideEncryption types.ServerSideEncryption
	SSEKMSKeyID          string
	// Metadata is metadata of the object, for people: names of letters, digits, "-", "_" and
	// ".", values in printable ASCII, 2 KB in all.
	Metadata map[string]string
	// ExpectedBucketOwner is the account that must own the bucket: a bucket of
	// that name in another account is refused with 403. Empty: any.
	ExpectedBucketOwner string
	// ChecksumAlgorithm makes the SDK add a checksum of this kind to each upload. Empty:
	// uploads have a Content-MD5, which each server knows, and which Object Lock accepts.
	// Directory buckets do not know it, so uploads to them have none.
	ChecksumAlgorithm types.ChecksumAlgorithm
	// OpaqueETags says that this server's ETags are not meant to be the MD5 of the content.
	// Without it they must be, as with Amazon and most servers, so that a response that was
	// changed on its way is noticed. You need not set it for directory buckets or SSE-KMS: the
	// Decider recognizes these.
	OpaqueETags bool
	// UnquotedETag sends If-Match without quotes around the ETag, for servers
	// that compare it as a bare string. Amazon, MinIO and R2 take it in quotes.
	UnquotedETag bool
}

func (o *Options) clone() Options {
	c := *o
	c.Metadata = maps.Clone(o.Metadata)
	return c
}

// checkMetadata says what no server would take.
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

// given is nil for what is left out.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
