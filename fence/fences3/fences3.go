/*
Package fences3 fences writes to objects of S3: the object's metadata holds the
token of its last write, and each write is conditional on the very version whose
token was judged.

	state := fmt.Appendf(nil, `{"writer":%q,"open":17}`, fences3.Mark(token))
	err := fences3.Put(ctx, client, token, &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: bytes.NewReader(state),
	}, nil)
	if errors.Is(err, fence.ErrStale) { ... } // another one leads: the object is as it was

Objects fence themselves one by one: one that the new leader has not written yet
takes an old leader's write. Let a new leader write every object that it answers for,
before it reads what it will go by.

# The content carries the token

S3 knows an object's version by its ETag, and that is a hash of the content alone:
"The ETag reflects changes only to the contents of an object, not its metadata"
(https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html). A new leader that
writes just what had been there before gives the object its old ETag back, and the
conditional write of a deposed leader, who saw it under that ETag, passes. So the
contents of different leaderships must differ, and the sure way to that is that they
carry the token: the number of a leadership is not known before it begins. [Put] refuses
a content that does not have [Mark] somewhere in its bytes. There is a place for it
in most forms: a field of JSON, XML or Protobuf, a comment of YAML, gzip or ZIP, the
metadata of Parquet. For buckets whose ETags are no hashes there is
[Options.UniqueETags].

# What is written where

Metadata of the object itself: x-amz-meta-fencingtoken is the token,
x-amz-meta-fencingwrite a random text, by which a write whose answer was lost is
known again, and x-amz-meta-fencingsum a hash of both and the content's MD5, by
which an answer is known to be of one version. An object without them, from before
there was a fence, takes any token. What is there and is no token
(fence.ErrMalformed), or one of another election (fence.ErrOtherElection), is never
overwritten: correct it, or remove it, by copying the object onto itself with other
metadata.

So everything that writes the object has to do it through the fence. A tool that
replaces it takes the fence away, and so does one that deletes it: a deposed
leader's write then makes it anew. Do not delete fenced objects; write an empty
state. Lifecycle rules that expire current versions are to leave them out.

# What it rests on

A PutObject with If-Match happens only if the object has the ETag that was seen, and
else fails with 412, or 404 where it was deleted; with If-None-Match: * only if there
is none; 409 says that another request was under way
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).
Reads see what was written before. A refused write leaves the object as it is. When
another write comes between the look and the write, both are done again.

A server that only looks like S3, and takes no notice of the conditions, would keep nobody out.
So if the client has an endpoint, a Put that raises the fence first makes a write that the
server must refuse, with an ETag that no object has; the Put that makes the object makes it
afterwards. A server that accepts it is an error, and the fence stays as it was. That shows that conditions are
honored, and not that the server decides and writes in one step: see VerifyConditionalWrites of
deciders/s3.

# What it needs of the bucket

  - One bucket for all. A replica in another region, or a multi-Region access point, has
    fences of its own: use one and the same bucket everywhere.
  - No expiry of current versions: see above.
  - Durability is S3's own. A server of another kind must keep what it has acknowledged.

The metadata of a look must be those of the version whose ETag came with them, else
the token that is judged is not that of the version that is replaced. Such a server
may read the one and the other in turn, and another write come in between
(versitygw v1.8.0 does), and a cache may have kept the metadata. So a look is trusted
only if x-amz-meta-fencingsum proves it. An object from before there was a fence has no
such proof: there two looks in a row must have the same ETag, since the metadata of the
second are then of that version, or of one after it, and then the write is refused. So
it is, too, where ETags are not the content's MD5 (SSE-KMS, SSE-C, directory buckets,
Options.OpaqueETags): let no cache stand before such a bucket.

Anything may answer 200. A write counts as done only if the answer's ETag is the MD5 of
what was sent, or if the object is looked at, and has the write's own random text.

The client repeats what failed and may pass, by its own rules. Where it gives up, or
ctx ends with the answer outstanding, the object is read once more if ctx allows; a
write that is found there is reported as done. fence.ErrStale is certain: the object
does not hold what was to be written, and will not. Any other error of the store
leaves open whether it was written, or will be.

# Permissions and costs

s3:GetObject and s3:PutObject on the object, and s3:ListBucket on the bucket:
without it S3 says 403 instead of 404 of an object that is not there yet. A fenced
write is a HeadObject (priced as a GET) and a PutObject; a refused one is a
HeadObject alone. If the ETag is not the content's MD5 (SSE-KMS, SSE-C, directory
buckets) each takes two HeadObjects, and a write two more to prove it. At a server that is not
Amazon's the first write of a leadership sends the content twice.

# What becomes of fences

A fence is in the object. One that is deleted takes its fence along, and an older
version that is restored (from a backup, or by versioning) brings the older fence back:
leaders deposed since then may write it again. After either, let the leader in office
write the object before anything relies on it. In a bucket with versioning or Object
Lock each write leaves a version behind, which costs storage; it does not touch the
fence. Giving up a Put changes nothing at the server but that nobody hears the answer:
it happens as a whole or not at all, perhaps later.
*/
package fences3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/internal/object"
)

// Client is what Put needs of a *s3.Client of the AWS SDK.
type Client interface {
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

var _ Client = (*s3.Client)(nil)

// Mark is what a content must carry that is written under token: "fencing(", the
// token as fence.Token.String has it, and ")".
func Mark(token fence.Token) string { return "fencing(" + token.String() + ")" }

// Options are for [Put]. The zero value is right for most.
type Options struct {
	// UniqueETags says that this bucket never gives two contents the same
	// ETag twice, not even equal ones, as where ETags are random: then the
	// content need not carry the token. Ordinary buckets are not of that kind.
	// Objects under SSE-KMS or SSE-C and those of directory buckets have ETags
	// that are not the MD5 of their content, which Amazon documents, but not
	// that none repeats: ask, or try. Put returns an error after a write whose
	// ETag proves to be the content's MD5.
	UniqueETags bool
	// OpaqueETags says that this server's ETags are not the MD5 of the content, nor
	// are meant to be, though two equal contents may have the same. Without it, and
	// without UniqueETags, they must be. Directory buckets, and answers that tell of
	// SSE-KMS or SSE-C, need no such word.
	OpaqueETags bool
}

// Put writes in.Body, from its beginning, to the object if token is admitted. The
// Body must be an io.ReadSeeker, since it is sent again where another write came
// between, and carry its Mark. All else of in is the caller's, but for IfMatch and
// IfNoneMatch, which are the fence's; in is not changed. Options may be nil.
//
// Errors are a *fence.StaleError, the error of token.Check, or wrap fence.ErrMalformed or
// fence.ErrOtherElection for what the metadata holds, which is left alone, or say
// what is wrong with in; or they are what the store says, or the Body. The package
// comment tells which of them leave open what was written. Put may be called by
// any number of goroutines at once; of writes under one token one is the last,
// whichever.
func Put(ctx context.Context, client Client, token fence.Token, in *s3.PutObjectInput, opts *Options) error {
	var o Options
	if opts != nil {
		o = *opts
	}
	at := place(in)
	body, hash, err := check(in, token, o)
	if err != nil {
		return fmt.Errorf("fences3: writing %s under %v: %w", at, token, err)
	}
	var hashed error
	err = fenced(client, in, at, o.opaque(in)).Put(ctx, token, func(ctx context.Context, seen object.Seen, marks map[string]string) error {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return err
		}
		put := *in
		marks[sumName] = sum(marks[object.TokenName], marks[object.WriteName], hash)
		put.Metadata = object.With(in.Metadata, marks)
		if seen.Exists {
			put.IfMatch = &seen.ETag
		} else {
			put.IfNoneMatch = aws.String("*")
		}
		out, err := client.PutObject(ctx, &put)
		switch {
		case err != nil:
			return err
		case aws.ToString(out.ETag) != `"`+hash+`"` && aws.ToString(out.ETag) != hash:
			return fmt.Errorf("the ETag %s is not the MD5 of what was sent, %s: %w", aws.ToString(out.ETag), hash, object.ErrUnproved)
		case o.UniqueETags:
			hashed = fmt.Errorf("its ETag %s is the content's MD5: Options.UniqueETags is not for this bucket, whose content must carry its Mark", hash)
		}
		return nil
	})
	if err == nil && hashed != nil {
		err = fmt.Errorf("fences3: %s was written under %v, and %w", at, token, hashed)
	}
	return err
}

// check says what is wrong with in, before anything is sent, and returns the
// Body and its MD5.
func check(in *s3.PutObjectInput, token fence.Token, o Options) (body io.ReadSeeker, hash string, err error) {
	if err := token.Check(token.Election); err != nil {
		return nil, "", err
	}
	body, ok := in.Body.(io.ReadSeeker)
	switch {
	case in.IfMatch != nil || in.IfNoneMatch != nil:
		return nil, "", errors.New("leave IfMatch and IfNoneMatch out: the fence has its own")
	case !ok:
		return nil, "", fmt.Errorf("the Body is a %T: use an io.ReadSeeker, such as a bytes.Reader or a file", in.Body)
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return nil, "", err
	}
	h := md5.New()
	found, err := contains(io.TeeReader(body, h), []byte(Mark(token)))
	if err == nil && !found && !o.UniqueETags {
		err = fmt.Errorf("the Body does not carry its Mark: put %q somewhere into it, since S3 tells the writes of different leaderships apart by their content alone", Mark(token))
	}
	return body, fmt.Sprintf("%x", h.Sum(nil)), err
}

// contains reads r to its end and reports whether text is in it, without keeping all
// of it.
func contains(r io.Reader, text []byte) (found bool, err error) {
	buf := make([]byte, 0, 64<<10)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		found = found || bytes.Contains(buf, text)
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return false, err
		}
		if keep := len(text) - 1; len(buf) > keep { // it may lie across
			buf = buf[:copy(buf, buf[len(buf)-keep:])]
		}
	}
}

func place(in *s3.PutObjectInput) string {
	return fmt.Sprintf("S3 bucket %q, object %q", aws.ToString(in.Bucket), aws.ToString(in.Key))
}

// opaque reports whether the ETags of in's bucket tell nothing of the content. Directory
// buckets have names of this form, and random ETags.
func (o Options) opaque(in *s3.PutObjectInput) bool {
	bucket := aws.ToString(in.Bucket)
	return o.OpaqueETags || o.UniqueETags || strings.HasSuffix(bucket, "--x-s3") || strings.HasSuffix(bucket, "--xa-s3")
}

func fenced(client Client, in *s3.PutObjectInput, at string, opaque bool) object.Object {
	return object.Object{
		Package: "fences3", Place: at, Refused: refused, Never: never(client),
		Look: func(ctx context.Context) (object.Seen, error) { return look(ctx, client, in, opaque) },
	}
}

// never is a version that no object has, or nil if the client's server is Amazon's.
func never(client Client) *object.Seen {
	if c, ok := client.(interface{ Options() s3.Options }); ok && aws.ToString(c.Options().BaseEndpoint) == "" {
		return nil
	}
	return &object.Seen{Exists: true, ETag: object.NoETag}
}

// sumName is the metadata that binds the others to the version's ETag.
const sumName = "fencingsum"

// sum is what the metadata sumName holds of a write with a content of that MD5.
func sum(token, write, hash string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(token+"\n"+write+"\n"+hash)))
}

// looks is how many answers in a row may differ: while others keep writing, all do.
const looks = 16

// look returns an ETag, and metadata that are of no older version: those that their
// sum binds to the ETag. Where there is no sum yet, or the ETag is opaque, they are
// those that came with the same ETag as the answer before. (The version was there all
// the time from the reading of the one ETag to that of the other. Metadata read between
// the two are its own, and later ones are newer: a write that is conditional on the
// ETag does not pass then.)
func look(ctx context.Context, client Client, in *s3.PutObjectInput, opaque bool) (object.Seen, error) {
	var last object.Seen
	for range looks {
		seen, encrypted, err := head(ctx, client, in)
		if err != nil || !seen.Exists {
			return seen, err
		}
		bound := seen.Mark(sumName)
		if bound == sum(seen.Mark(object.TokenName), seen.Mark(object.WriteName), bare(&seen.ETag)) {
			return seen, nil
		}
		if last.Exists && seen.ETag == last.ETag && (opaque || encrypted || bound == "" && last.Mark(sumName) == "") {
			return seen, nil
		}
		last = seen
	}
	return last, fmt.Errorf("of %d looks none had metadata that fit their ETag, nor two in a row the same ETag without them, so each may be of two versions: others keep writing, or the server's answers cannot be relied on; if its ETags are no MD5s, set OpaqueETags", looks)
}

// head is one look, and reports whether the ETag is no MD5 because the object is
// encrypted. It is no error that there is no object, nor that there is no bucket: then
// the write says so.
func head(ctx context.Context, client Client, in *s3.PutObjectInput) (seen object.Seen, encrypted bool, err error) {
	out, err := client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: in.Bucket, Key: in.Key, ExpectedBucketOwner: in.ExpectedBucketOwner, RequestPayer: in.RequestPayer,
		SSECustomerAlgorithm: in.SSECustomerAlgorithm, SSECustomerKey: in.SSECustomerKey, SSECustomerKeyMD5: in.SSECustomerKeyMD5,
	})
	switch code, status := parse(err); {
	case status == http.StatusNotFound && (code == "NotFound" || code == "NoSuchKey"):
		return object.Seen{}, false, nil
	case status == http.StatusForbidden: // whose answer to a HEAD says nothing
		return object.Seen{}, false, fmt.Errorf("s3:GetObject on the object is needed, and s3:ListBucket on the bucket, else one that is not there yet is refused as well: %w", err)
	case err != nil:
		return object.Seen{}, false, err
	}
	etag := strings.TrimPrefix(aws.ToString(out.ETag), "W/") // which proxies that compress add
	if etag == "" {
		return object.Seen{}, false, errors.New("the answer has no ETag: it is not from an S3 server, or from one that cannot fence")
	}
	encrypted = strings.HasPrefix(string(out.ServerSideEncryption), "aws:kms") || out.SSECustomerAlgorithm != nil
	return object.Seen{Exists: true, ETag: etag, Metadata: out.Metadata}, encrypted, nil
}

// bare returns an ETag without its quotes.
func bare(etag *string) string { return strings.Trim(aws.ToString(etag), `"`) }

// refused reports whether the object is not as it was seen.
func refused(err error) bool {
	switch code, status := parse(err); code {
	case "NoSuchKey", "ConditionalRequestConflict", "OperationAborted": // it was deleted; another request was under way
		return true
	default:
		return status == http.StatusPreconditionFailed
	}
}

// parse returns the code and the HTTP status of an error that the server sent.
func parse(err error) (code string, status int) {
	var api smithy.APIError
	var answer *awshttp.ResponseError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	return code, status
}
