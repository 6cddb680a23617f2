package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/s3/internal/answers"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// Client is what a Decider needs of a *s3.Client of the AWS SDK.
type Client interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
	// DeleteObject is called only by VerifyConditionalWrites.
	DeleteObject(context.Context, *s3.DeleteObjectInput, ...func(*s3.Options)) (*s3.DeleteObjectOutput, error)
}

var (
	_ Client                     = (*s3.Client)(nil)
	_ leaderelection.RaceDecider = (*Decider)(nil)
)

// Decider keeps one election in one object. Its methods may be called by several goroutines at
// once.
type Decider struct {
	b        *backend
	election store.Election[token]
	close    func() // closes the idle connections of Open's client; nil: the client is the caller's
}

// backend is the store: one object of a bucket.
type backend struct {
	client      Client
	bucket, key string
	o           Options
	opaque      bool // whether ETags tell nothing of the content
	call        []func(*s3.Options)
	distrusted  func() // told of each refusal that other credentials may cure
}

// NewDecider returns a decider for the election in the object key of bucket, which is a bucket's
// name or an access point's ARN. Client is a *s3.Client of the AWS SDK. It brings region, endpoint
// and credentials. Options may be nil. NewDecider makes no request: the first call reports a name
// that cannot be right.
func NewDecider(client Client, bucket, key string, opts *Options) *Decider {
	b := &backend{client: client, bucket: bucket, key: key, call: []func(*s3.Options){once}, distrusted: func() {}}
	if opts != nil {
		b.o = *opts
	}
	b.opaque = b.o.OpaqueETags || answers.Directory(bucket)
	d := &Decider{b: b, election: store.Election[token]{Store: b, Package: "s3", Place: fmt.Sprintf("S3 bucket %q, object %q", bucket, key)}}
	d.election.Never = &token{etag: "0123456789abcdef0123456789abcdef"}
	if c, ok := client.(interface{ Options() s3.Options }); ok {
		o := c.Options()
		if aws.ToString(o.BaseEndpoint) == "" {
			d.election.Never = nil // it is Amazon's
		}
		if o.BaseEndpoint != nil {
			d.election.Place += " at " + redact.URL(*o.BaseEndpoint)
		} else if o.Region != "" {
			d.election.Place += " in " + o.Region
		}
	}
	if d.election.Wrong = checkNames(bucket, key); client == nil {
		d.election.Wrong = errors.New("the client is nil")
	}
	return d
}

// checkNames says what cannot be of a bucket's and an object's name.
func checkNames(bucket, key string) error {
	switch {
	case bucket == "":
		return errors.New("no bucket is named")
	case strings.HasPrefix(bucket, "arn:") && strings.HasSuffix(bucket, ".mrap"):
		return errors.New("the bucket is a multi-region access point, whose regions each have a copy of their own, so that two could lead: name one of its buckets, or an access point in one region")
	case key == "" || len(key) > maxKey:
		return fmt.Errorf("the object's key has %d bytes: it must have 1 to %d", len(key), maxKey)
	}
	return nil
}

// maxKey is S3's limit to the length of keys, in bytes.
const maxKey = 1024

// once switches off, for one request, the client's own retries, the checksum that
// it would add unasked, and the line that it would log for each object that has
// none.
func once(o *s3.Options) {
	o.Retryer = aws.NopRetryer{}
	o.RetryMaxAttempts = 0 // else it would wrap the Retryer
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.DisableLogOutputChecksumValidationSkipped = true
}

// Close closes the connections of the client that Open has made. A client given to NewDecider is
// yours to close.
func (d *Decider) Close() error {
	if d.close != nil {
		d.close()
	}
	return nil
}

// Inherit implements open.Heir: a write to a server that is not known to honor conditions stays
// unproved with a new client, too.
func (d *Decider) Inherit(from leaderelection.RaceDecider) {
	if earlier, ours := from.(*Decider); ours {
		d.election.Inherit(&earlier.election)
	}
}

// String names the place: bucket, object, and endpoint or region.
func (d *Decider) String() string { return d.election.Place }

// token is a version of the object: its ETag, bare, or the empty one if there
// is no object.
type token struct {
	etag   string
	commit time.Time
	weak   bool // whether the answer's ETag was marked as weak
	kms    bool // whether the answer says that its ETag is not an MD5
}

// of reports whether t, by its ETag, is the version of data.
func (t *token) of(data []byte) bool {
	sum := md5.Sum(data)
	return t.etag == hex.EncodeToString(sum[:])
}

// CommitTS is Last-Modified, or the Date of the response to the write, in whole seconds.
func (t token) CommitTS() time.Time { return t.commit }

// ReadCurrent implements leaderelection.RaceDecider with a GetObject.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider with a PutObject that is
// conditional on the ETag. A refusal is a leaderelection.LostRaceError, without
// the current record, which S3 does not return.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (s store.Stored[token], err error) {
	data, t, err := b.read(ctx, b.key)
	switch {
	case answers.Missing(err):
		return store.Stored[token]{None: true, Emptied: answers.Deleted(err)}, nil
	case err != nil:
		return s, err
	}
	return store.Stored[token]{Data: data, At: *t}, nil
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at token, data []byte, _ *leaderelection.RaceEntry) (token, error) {
	t, err := b.write(ctx, b.key, data, &at)
	if err != nil {
		return token{}, err
	}
	return *t, nil
}

// How many answers read asks for before it gives up: one that does not fit its ETag is
// rare, and of two opaque ETags that differ the reason may just be many writers.
const reads, opaqueReads = 4, 16

// read returns the object's content and its ETag. An ETag of a later version would
// be fatal: a write by it would replace a record that nobody has seen. So the ETag
// must be the content's MD5. If ETags are opaque, two answers in a row must have
// the same one: the version was there all the time from the reading of the one to
// that of the other, so what was read in between is its content, and what was read
// after that is newer. An answer that tells of SSE-KMS is taken as it comes: servers that
// have it put none together from two versions.
func (b *backend) read(ctx context.Context, key string) (data []byte, t *token, err error) {
	var last *token
	tries := reads
	if b.opaque {
		tries = opaqueReads
	}
	for range tries {
		data, t, err = b.get(ctx, key)
		if err != nil || len(data) > store.MaxSize || t.kms || t.of(data) || b.opaque && last != nil && last.etag == t.etag {
			return data, t, err
		}
		last = t
	}
	if b.opaque {
		return nil, nil, fmt.Errorf("%d responses in a row had different ETags: others keep writing, or the server's responses cannot be relied on", tries)
	}
	return nil, nil, fmt.Errorf("%d responses in a row had a content that does not fit its ETag (the last %q): something on the way changes them; if this server's ETags are not MD5s, set OpaqueETags", tries, t.etag)
}

// ask asks for an object.
func (b *backend) ask(ctx context.Context, key string) (*s3.GetObjectOutput, error) {
	return b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.bucket, Key: &key, ExpectedBucketOwner: given(b.o.ExpectedBucketOwner)}, b.call...)
}

// get returns an object's content and version.
func (b *backend) get(ctx context.Context, key string) ([]byte, *token, error) {
	out, err := b.ask(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	defer out.Body.Close()
	var content bytes.Buffer
	if n := aws.ToInt64(out.ContentLength); n > 0 && n <= store.MaxSize {
		content.Grow(int(n) + bytes.MinRead) // so that reading to the end does not grow it
	}
	_, err = content.ReadFrom(io.LimitReader(out.Body, store.MaxSize+1)) // one more is refused
	if n := out.ContentLength; err == nil && n != nil && *n != int64(content.Len()) && *n <= store.MaxSize {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the answer was cut off: %w", err)
	}
	t, err := versionOf(out.ETag)
	if err != nil {
		return nil, nil, err
	}
	t.commit = aws.ToTime(out.LastModified)
	t.kms = strings.HasPrefix(string(out.ServerSideEncryption), "aws:kms")
	return content.Bytes(), t, nil
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	if answers.Refused(err) {
		return store.Lost
	}
	v := answers.Judge(err, b.o.ChecksumAlgorithm != "")
	if v.Denied || v.Permanent { // a key and its secret may have been written one after the other
		b.distrusted()
	}
	return v
}

// write is put, and proves that what was written is there: by the ETag of the answer,
// which is the MD5 of what was sent, or else by reading it back. Anything may answer
// 200 with an ETag.
func (b *backend) write(ctx context.Context, key string, data []byte, at *token) (*token, error) {
	t, err := b.put(ctx, key, data, at)
	if err != nil || t.of(data) && !t.weak {
		return t, err
	}
	found, read, err := b.read(ctx, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the response's ETag %q does not prove the write, and reading it back failed: %v", t.etag, err)
	case !bytes.Equal(found, data):
		return nil, fmt.Errorf("the response's ETag %q does not prove the write, and a read returned another content: the response may not be from the server", t.etag)
	}
	read.commit = t.commit
	return read, nil
}

// put writes an object if it still has the version at, where nil and the empty
// one mean that there must be none.
func (b *backend) put(ctx context.Context, key string, data []byte, at *token) (*token, error) {
	in := &s3.PutObjectInput{
		Bucket:               &b.bucket,
		Key:                  &key,
		Body:                 bytes.NewReader(data),
		ContentType:          &contentType,
		ServerSideEncryption: b.o.ServerSideEncryption,
		SSEKMSKeyId:          given(b.o.SSEKMSKeyID),
		ChecksumAlgorithm:    b.o.ChecksumAlgorithm,
		ExpectedBucketOwner:  given(b.o.ExpectedBucketOwner),
	}
	if b.o.ChecksumAlgorithm == "" && !answers.Directory(b.bucket) { // which know no Content-MD5
		sum := md5.Sum(data)
		in.ContentMD5 = aws.String(base64.StdEncoding.EncodeToString(sum[:]))
	}
	switch {
	case at == nil || at.etag == "":
		in.IfNoneMatch = &anyETag
	case b.o.UnquotedETag:
		in.IfMatch = &at.etag
	default:
		in.IfMatch = aws.String(`"` + at.etag + `"`)
	}
	out, err := b.client.PutObject(ctx, in, b.call...)
	if err != nil {
		return nil, err
	}
	t, err := versionOf(out.ETag)
	if err != nil {
		return nil, err
	}
	t.commit, _ = awsmiddleware.GetServerTime(out.ResultMetadata)
	return t, nil
}

var (
	contentType = "application/json"
	anyETag     = "*"
)

// errNoETag may pass, if something on the way to the server answered.
var errNoETag = errors.New("the response has no ETag: it is not from an S3 server, or the server cannot decide an election")

// versionOf takes the quotes off an ETag, and the mark of a weak one, which proxies
// that compress add to a strong one.
func versionOf(etag *string) (*token, error) {
	strong, weak := strings.CutPrefix(aws.ToString(etag), "W/")
	t := &token{etag: strings.Trim(strong, `"`), weak: weak}
	if t.etag == "" {
		return nil, errNoETag
	}
	return t, nil
}

// Options says how to write the object, and how the server differs from Amazon's. The zero value is
// right for Amazon and for most servers.
type Options struct {
	// ServerSideEncryption and SSEKMSKeyID are those of each PutObject, for a bucket whose
	// policy refuses writes without them. Empty: as the bucket has it, which is best for most.
	ServerSideEncryption types.ServerSideEncryption
	SSEKMSKeyID          string
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

// given is nil for what is left out.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
