/*
Package fences3 fences writes to objects of S3. The object's metadata holds the token of its last
write. Each write judges that token, and succeeds only if the object is still the version that was
judged.

	state := fmt.Appendf(nil, `{"writer":%q,"open":17}`, fences3.Mark(token))
	err := fences3.Put(ctx, client, token, &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: bytes.NewReader(state),
	}, nil)
	if errors.Is(err, fence.ErrStale) { ... } // another leads: the object is as it was

Each object is its own fence: until the new leader has written an object, the object accepts an old
leader's write. So a new leader writes each of its objects before it reads the data that it relies
on.

# The content carries the token

S3 identifies an object's version by its ETag, a hash of the content alone: "The ETag reflects
changes only to the contents of an object, not its metadata"
(https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html). If a new leader writes the same
content as before, the object has its old ETag again. A deposed leader that saw this ETag can then
overwrite it.

So the contents of different leaderships must differ. They do if they carry the token, since nobody
knows a leadership's number before it begins. [Put] refuses a content that does not have [Mark]
somewhere in its bytes. Most formats have a place for it: a field of JSON, XML or Protobuf, a
comment of YAML, gzip or ZIP, the metadata of Parquet. For buckets whose ETags are not hashes there
is [Options.UniqueETags].

# What is written where

Put sets three keys of the object's metadata:

  - x-amz-meta-fencingtoken is the token.
  - x-amz-meta-fencingwrite is a random text. It lets Put recognize its own write if the response
    was lost.
  - x-amz-meta-fencingsum is a hash of both and the content's MD5. It shows that a response
    describes one version.

An object without them, from before there was a fence, accepts any token. If fencingtoken is not a
token (fence.ErrMalformed), or is of another election (fence.ErrOtherElection), Put overwrites
nothing. Correct it, or remove it, by copying the object onto itself with other metadata.

A tool that replaces or deletes the object removes the fence, and a deposed leader can then write
again: write through the fence alone, and in place of a delete write an empty state.

# What it rests on

A PutObject with If-Match happens only if the object has the ETag that was seen. Otherwise it fails
with 412, or with 404 if the object was deleted. With If-None-Match: * it happens only if there is
no object. 409 says that another request was under way
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html). Reads see all
earlier writes. If another write comes between the look and the write, Put repeats both.

A server that imitates S3 but takes no notice of conditions would keep nobody out. So if the client
has an endpoint, a Put that raises the fence first makes a write that the server must refuse, with
an ETag that no object has. A Put that makes the object does so afterwards. If the server accepts
that write, Put returns an error, and the fence stays as it was. This does not show that the server
decides and writes in one step: see VerifyConditionalWrites of deciders/s3.

# What it needs of the bucket

  - One bucket for all. A replica in another region, or a multi-Region access point, has fences of
    its own.
  - No lifecycle rule that expires current versions.
  - Durability. S3 keeps what it has acknowledged. A server of another kind must do so, too.
  - No cache in front of the bucket if ETags are not the content's MD5 (SSE-KMS, SSE-C, directory
    buckets, Options.OpaqueETags).

A look must return the metadata and the ETag of the same version. Otherwise Put would judge one
version's token and replace another version. Some servers read the two separately, and another write
may come in between (versitygw v1.8.0 does this). A cache may have old metadata. So Put believes a
look only if x-amz-meta-fencingsum proves it.

An object from before there was a fence has no such proof, nor has one whose ETag is not the
content's MD5. There, two looks in a row must have the same ETag. The second look's metadata is then
of that version or of a later one, and after a later one the write is refused.

A write counts as done only if the response's ETag is the MD5 of what was sent. Otherwise Put looks
at the object for the write's own random text.

The client retries temporary errors by its own rules. If it gives up before ctx ends, Put reads the
object once more, and returns nil if it finds its own write. fence.ErrStale is certain: the object
does not have your content, and will not get it. After any other error, the write may have happened,
or may still happen.

# Permissions and costs

Put needs s3:GetObject and s3:PutObject on the object, and s3:ListBucket on the bucket: without it
S3 says 403 instead of 404 if the object does not exist yet.

A fenced write is a HeadObject (priced as a GET) and a PutObject. A refused write is only a
HeadObject. With versioning or Object Lock each write leaves a version behind, which costs storage.
If the ETag is not the content's MD5 (SSE-KMS, SSE-C, directory buckets), each takes two
HeadObjects, and a write takes two more to prove it. On a server that is not Amazon's, the first
write of a leadership sends the content twice.

# What becomes of fences

The fence is part of the object, and goes with it. If you restore an older version (from a backup,
or by versioning), the older fence comes back, and leaders deposed since then can write again. After
either, let the leader in office write the object before anything relies on it.

A Put that you give up may still happen, as a whole or not at all, perhaps later.
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
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection/deciders/internal/object"
	"github.com/c8e606e4/leaderelection/deciders/s3/internal/answers"
	"github.com/c8e606e4/leaderelection/fence"
)

// Client is what Put needs of a *s3.Client of the AWS SDK.
type Client interface {
	HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

var _ Client = (*s3.Client)(nil)

// Mark returns what a content written under token must carry: "fencing(", the token in the form of
// fence.Token.String, and ")".
func Mark(token fence.Token) string { return "fencing(" + token.String() + ")" }

// Options are for [Put]. The zero value is right for most.
type Options struct {
	// UniqueETags says that this bucket never gives the same ETag twice, even for equal
	// contents, for example because ETags are random. Then the content need not carry the
	// token. Ordinary buckets are not of this kind. Amazon documents that ETags under SSE-KMS
	// or SSE-C and in directory buckets are not the MD5 of the content, but not that they never
	// repeat: ask, or try. If a write's ETag is the content's MD5 after all, Put returns an
	// error after the write.
	UniqueETags bool
	// OpaqueETags says that this server's ETags are not meant to be the MD5 of the content,
	// though equal contents may have equal ETags. Without it and without UniqueETags they must
	// be the MD5. You need not set it for directory buckets, SSE-KMS or SSE-C: Put recognizes
	// these.
	OpaqueETags bool
}

// Put writes in.Body, from its beginning, to the object if token is admitted. The Body must carry
// its Mark. It must be an io.ReadSeeker, since Put sends it again if another write came between.
// Leave out IfMatch and IfNoneMatch: the fence sets its own. All other fields are yours. Put does
// not change in. Options may be nil.
//
// It returns a *fence.StaleError, the error of token.Check, an error about in, or an error of the
// store or the Body. If the metadata holds something else than a token of this election, the error
// wraps fence.ErrMalformed or fence.ErrOtherElection, and Put leaves the metadata alone. The
// package comment says after which errors the write may have happened. Put may be called by any
// number of goroutines at once. Of concurrent writes under one token, any may be the last.
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

// opaque reports whether the ETags of in's bucket tell nothing of the content.
func (o Options) opaque(in *s3.PutObjectInput) bool {
	return o.OpaqueETags || o.UniqueETags || answers.Directory(aws.ToString(in.Bucket))
}

func fenced(client Client, in *s3.PutObjectInput, at string, opaque bool) object.Object {
	return object.Object{
		Package: "fences3", Place: at, Refused: answers.Refused, Never: never(client),
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
	return last, fmt.Errorf("none of %d looks had metadata that fit their ETag, and no two in a row had the same ETag, so each may mix two versions. Others keep writing, or the server's responses cannot be relied on. If its ETags are not MD5s, set OpaqueETags", looks)
}

// head is one look, and reports whether the ETag is no MD5 because the object is
// encrypted. It is no error that there is no object, nor that there is no bucket: then
// the write says so.
func head(ctx context.Context, client Client, in *s3.PutObjectInput) (seen object.Seen, encrypted bool, err error) {
	out, err := client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: in.Bucket, Key: in.Key, ExpectedBucketOwner: in.ExpectedBucketOwner, RequestPayer: in.RequestPayer,
		SSECustomerAlgorithm: in.SSECustomerAlgorithm, SSECustomerKey: in.SSECustomerKey, SSECustomerKeyMD5: in.SSECustomerKeyMD5,
	})
	switch {
	case answers.NoObject(err):
		return object.Seen{}, false, nil
	case answers.Forbidden(err): // whose answer to a HEAD says nothing
		return object.Seen{}, false, fmt.Errorf("s3:GetObject on the object is needed, and s3:ListBucket on the bucket (without it S3 also refuses to say that an object does not exist yet): %w", err)
	case err != nil:
		return object.Seen{}, false, err
	}
	etag := strings.TrimPrefix(aws.ToString(out.ETag), "W/") // which proxies that compress add
	if etag == "" {
		return object.Seen{}, false, errors.New("the response has no ETag: it is not from an S3 server, or the server cannot fence")
	}
	encrypted = strings.HasPrefix(string(out.ServerSideEncryption), "aws:kms") || out.SSECustomerAlgorithm != nil
	return object.Seen{Exists: true, ETag: etag, Metadata: out.Metadata}, encrypted, nil
}

// bare returns an ETag without its quotes.
func bare(etag *string) string { return strings.Trim(aws.ToString(etag), `"`) }
