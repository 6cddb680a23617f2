/*
Package fenceazure fences writes to blobs of Azure Storage: the blob's metadata
holds the token of its last write, and each write is conditional on the very
version whose token was judged.

	blob := client.ServiceClient().NewContainerClient("orders").NewBlockBlobClient("state.json")
	err := fenceazure.Put(ctx, blob, token, bytes.NewReader(state), nil)
	if errors.Is(err, fence.ErrStale) { ... } // another one leads: the blob is as it was

Blobs fence themselves one by one: one that the new leader has not written yet
takes an old leader's write. Let a new leader write, or call [Raise], for every blob
that it answers for, before it reads what it will go by.

# What is written where

Metadata of the blob itself: fencingtoken is the token, as fence.Token.String has
it, and fencingwrite a random text, by which a write whose answer was lost is known
again. A blob without them, from before there was a fence, takes any token. What is
there and is no token (fence.ErrMalformed), or one of another election
(fence.ErrOtherElection), is never overwritten: correct it, or remove it, with
"az storage blob metadata update", which replaces all of a blob's metadata.

So everything that writes the blob has to do it through the fence. A tool that
replaces it takes the fence away, and so does one that deletes it: a deposed
leader's write then makes it anew. Do not delete fenced blobs; write an empty one.
Lifecycle rules that delete are to leave them out.

# What it rests on

A Put Blob with If-Match happens only if the blob's ETag is the one that was seen,
and else fails with 412; with If-None-Match: * only if there is none, and else fails
with 409
(https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations).
Every write, of metadata too, makes a new ETag, and reads see the last write. A
refused write leaves the blob as it is. When another write comes between the look
and the write, both are done again.

A server that only speaks Azure's API, and takes no notice of conditions, would keep nobody
out. So if the account's URL is not of one of Azure's clouds, a Put or [Raise] that raises the
fence first makes a write that the server must refuse, with an ETag that no blob has; the Put that
makes the blob makes it afterwards. A server that accepts it is an error, and the fence stays as it was.

# What it needs of the account

  - One writer's region: with GRS or GZRS an account that fails over is as it was some minutes
    before, and so are its fences. After that let the leader in office write each blob first.
  - Object replication copies blobs, and no fence: use one and the same container everywhere.
  - No lifecycle rule that deletes: see above. An immutability policy keeps a blob, and its
    fence, from being written at all.

Anything may answer 200 or 201. A write counts as done only if the answer's Content-MD5
is that of what was sent, or the blob is looked at, and has the write's own random text.
Nothing in the answer to a look binds the ETag to the rest: let no cache stand before the
account that would join old metadata with the newest ETag.

The client repeats what failed and may pass, by its own rules. Where it gives up, or
ctx ends with the answer outstanding, the blob is read once more if ctx allows; a
write that is found there is reported as done. fence.ErrStale is certain: the blob
does not hold what was to be written, and will not. Any other error of the store
leaves open whether it was written, or will be.

# Permissions and costs

The role Storage Blob Data Contributor, or its data actions
Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read, /write and,
to make blobs, /add/action; of a shared access signature r, w and c. A fenced write
is one "other" operation (the look, Get Blob Properties) and one write; a refused
one is the look alone. [Raise] looks twice. The content is read twice, for its MD5.

# What becomes of fences

A fence is in the blob. One that is deleted takes its fence along, and an older version
that is restored (from soft deletion, versioning, a snapshot or a point in time) brings
the older fence back: leaders deposed since then may write it again. After either, let
the leader in office write the blob, or call [Raise], before anything relies on it.
Giving up a Put changes nothing at Azure but that nobody hears the answer: it happens as
a whole or not at all, perhaps later.
*/
package fenceazure

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/internal/object"
)

// Put writes content, from its beginning, to the blob if token is admitted, in one
// request of up to 5,000 MiB. Options may be nil; they are those of the SDK's
// Upload (HTTPHeaders, Metadata, a lease's id, ...), but for conditions on the
// version, which are the fence's.
//
// Errors are a *fence.StaleError, the error of token.Check, or wrap fence.ErrMalformed or
// fence.ErrOtherElection for what the metadata holds, which is left alone; or they
// are what the store says, or content. The package comment tells which of them
// leave open what was written. Put may be called by any number of goroutines at
// once; of writes under one token one is the last, whichever.
func Put(ctx context.Context, b *blockblob.Client, token fence.Token, content io.ReadSeeker, options *blockblob.UploadOptions) error {
	var o blockblob.UploadOptions
	if options != nil {
		o = *options
	}
	access, err := conditions(b, o.AccessConditions)
	if err != nil {
		return err
	}
	own := plain(o.Metadata)
	hash := md5.New()
	_, err = content.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(hash, content)
	}
	if err != nil {
		return fmt.Errorf("fenceazure: the content of %s: %w", place(b), err)
	}
	return fenced(b).Put(ctx, token, func(ctx context.Context, seen object.Seen, marks map[string]string) error {
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			return err
		}
		o.AccessConditions, access.ModifiedAccessConditions = &access, only(seen)
		o.Metadata = pointers(object.With(own, marks))
		r, err := b.Upload(ctx, streaming.NopCloser(content), &o)
		if err == nil && !bytes.Equal(r.ContentMD5, hash.Sum(nil)) {
			err = fmt.Errorf("its Content-MD5 is %x, want %x: %w", r.ContentMD5, hash.Sum(nil), object.ErrUnproved)
		}
		return err
	})
}

// Raise raises the fence of a blob that there is, and leaves its content as it is:
// from then on, writes under smaller tokens are refused. It does nothing if the
// blob has the token already. Options may be nil; they are those of the SDK's
// SetMetadata (a lease's id, ...), but for conditions on the version, which are the
// fence's. Errors are those of Put.
func Raise(ctx context.Context, b *blockblob.Client, token fence.Token, options *blob.SetMetadataOptions) error {
	var o blob.SetMetadataOptions
	if options != nil {
		o = *options
	}
	access, err := conditions(b, o.AccessConditions)
	if err != nil {
		return err
	}
	return fenced(b).Raise(ctx, token, func(ctx context.Context, seen object.Seen, marks map[string]string) error {
		o.AccessConditions, access.ModifiedAccessConditions = &access, only(seen)
		_, err := b.SetMetadata(ctx, pointers(object.With(seen.Metadata, marks)), &o)
		if err == nil {
			err = object.ErrUnproved // nothing in the answer would
		}
		return err
	})
}

// conditions are a copy of the caller's, which leave the version to the fence.
func conditions(b *blockblob.Client, own *blob.AccessConditions) (blob.AccessConditions, error) {
	if own == nil {
		return blob.AccessConditions{}, nil
	}
	if own.ModifiedAccessConditions != nil {
		return blob.AccessConditions{}, fmt.Errorf("fenceazure: writing %s: leave ModifiedAccessConditions out: the fence has its own", place(b))
	}
	return *own, nil
}

// place is the blob's URL without what gives access to it.
func place(b *blockblob.Client) string {
	parts, err := blob.ParseURL(b.URL())
	if err != nil {
		return "the blob"
	}
	return parts.Scheme + "://" + parts.Host + parts.IPEndpointStyleInfo.AccountName + "/" + parts.ContainerName + "/" + parts.BlobName
}

func fenced(b *blockblob.Client) object.Object {
	return object.Object{
		Package: "fenceazure", Place: place(b), Refused: refused, Never: never(b),
		Look: func(ctx context.Context) (object.Seen, error) {
			p, err := b.GetProperties(ctx, nil)
			if bloberror.HasCode(err, bloberror.BlobNotFound) {
				return object.Seen{}, nil
			}
			if err != nil {
				return object.Seen{}, err
			}
			if p.ETag == nil || *p.ETag == "" {
				return object.Seen{}, errors.New("the answer has no ETag: it is not from a blob service")
			}
			return object.Seen{Exists: true, ETag: string(*p.ETag), Metadata: plain(p.Metadata)}, nil
		},
	}
}

// never is a version that no blob has, or nil if the account is in one of Azure's own clouds.
func never(b *blockblob.Client) *object.Seen {
	if parts, err := blob.ParseURL(b.URL()); err == nil {
		for _, cloud := range []string{".core.windows.net", ".storage.azure.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net"} {
			if strings.HasSuffix(parts.Host, cloud) {
				return nil
			}
		}
	}
	return &object.Seen{Exists: true, ETag: object.NoETag}
}

// only is the condition that the blob is as it was seen.
func only(seen object.Seen) *blob.ModifiedAccessConditions {
	etag := azcore.ETag(seen.ETag)
	if !seen.Exists {
		etag = azcore.ETagAny
		return &blob.ModifiedAccessConditions{IfNoneMatch: &etag}
	}
	return &blob.ModifiedAccessConditions{IfMatch: &etag}
}

// refused reports whether the blob is not as it was seen: 412, 409 where it was made
// since, or Raise's blob is gone.
func refused(err error) bool {
	return bloberror.HasCode(err, bloberror.ConditionNotMet, bloberror.BlobAlreadyExists, bloberror.BlobNotFound)
}

func plain(metadata map[string]*string) map[string]string {
	m := make(map[string]string, len(metadata))
	for k, v := range metadata {
		if v != nil {
			m[k] = *v
		}
	}
	return m
}

func pointers(metadata map[string]string) map[string]*string {
	m := make(map[string]*string, len(metadata))
	for k, v := range metadata {
		m[k] = &v
	}
	return m
}
