/*
Package fenceazure fences writes to blobs of Azure Storage. The blob's metadata holds the token of
its last write. Each write judges that token, and succeeds only if the blob is still the version
that was judged.

	blob := client.ServiceClient().NewContainerClient("orders").NewBlockBlobClient("state.json")
	err := fenceazure.Put(ctx, blob, token, bytes.NewReader(state), nil)
	if errors.Is(err, fence.ErrStale) { ... } // another leads: the blob is as it was

Each blob is its own fence: until the new leader has written a blob, the blob accepts an old
leader's write. So a new leader writes each of its blobs, or calls [Raise] for it, before it reads
the data that it relies on.

# What is written where

Put sets two keys of the blob's metadata:

  - fencingtoken is the token, in the form of fence.Token.String.
  - fencingwrite is a random text. It lets Put recognize its own write if the response was lost.

A blob without them, from before there was a fence, accepts any token. If fencingtoken is not a
token (fence.ErrMalformed), or is of another election (fence.ErrOtherElection), Put overwrites
nothing. Correct it, or remove it, with "az storage blob metadata update", which replaces all of a
blob's metadata.

A tool that replaces or deletes the blob removes the fence, and a deposed leader can then write
again: write through the fence alone, and in place of a delete write an empty blob.

# What it rests on

A Put Blob with If-Match happens only if the blob's ETag is the one that was seen. Otherwise it
fails with 412. With If-None-Match: * it happens only if there is no blob. Otherwise it fails with
409
(https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations).
Every write, even of metadata, makes a new ETag, and reads see the last write. If another write
comes between the look and the write, Put repeats both.

A server that imitates Azure's API but takes no notice of conditions would keep nobody out. So if
the account's URL is not of one of Azure's clouds, a Put or [Raise] that raises the fence first
makes a write that the server must refuse, with an ETag that no blob has. A Put that makes the blob
does so afterwards. If the server accepts that write, Put returns an error, and the fence stays as
it was.

# What it needs of the account

  - One region that writes. With GRS or GZRS, an account that fails over goes back some minutes, and
    so do its fences. After that let the leader in office write each blob first.
  - One container for all. Object replication copies blobs, but does not share fences.
  - No lifecycle rule that deletes. An immutability policy prevents all writes of a blob and its
    fence.
  - No cache in front of the account that would join old metadata with the newest ETag: nothing in
    the response to a look binds the ETag to the rest.

A write counts as done only if the response's Content-MD5 is that of what was sent. Otherwise Put
looks at the blob for the write's own random text.

The client retries temporary errors by its own rules. If it gives up before ctx ends, Put reads the
blob once more, and returns nil if it finds its own write. fence.ErrStale is certain: the blob does
not have your content, and will not get it. After any other error, the write may have happened, or
may still happen.

# Permissions and costs

The role Storage Blob Data Contributor, or its data actions
Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read, /write and, to make blobs,
/add/action. A shared access signature needs r, w and c. A fenced write is one "other" operation
(the look, Get Blob Properties) and one write. A refused write is only the look. [Raise] looks
twice. Put reads the content twice, for its MD5.

# What becomes of fences

The fence is part of the blob, and goes with it. If you restore an older version (from soft
deletion, versioning, a snapshot or a point in time), the older fence comes back, and leaders
deposed since then can write again. After either, let the leader in office write the blob, or call
[Raise], before anything relies on it.

A Put that you give up may still happen, as a whole or not at all, perhaps later.
*/
package fenceazure

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/c8e606e4/leaderelection/deciders/azblob/internal/native"
	"github.com/c8e606e4/leaderelection/deciders/internal/object"
	"github.com/c8e606e4/leaderelection/fence"
)

// Put writes content, from its beginning, to the blob if token is admitted, in one request of up to
// 5,000 MiB. Options may be nil. They are those of the SDK's Upload (HTTPHeaders, Metadata, a
// lease's id, ...), but without conditions on the version: the fence sets its own.
//
// It returns a *fence.StaleError, the error of token.Check, or an error of the store or of content.
// If the metadata holds something else than a token of this election, the error wraps
// fence.ErrMalformed or fence.ErrOtherElection, and Put leaves the metadata alone. The package
// comment says after which errors the write may have happened. Put may be called by any number of
// goroutines at once. Of concurrent writes under one token, any may be the last.
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
		o.AccessConditions, access.ModifiedAccessConditions = &access, native.IfMatch(azcore.ETag(seen.ETag))
		o.Metadata = pointers(object.With(own, marks))
		r, err := b.Upload(ctx, streaming.NopCloser(content), &o)
		if err == nil && !bytes.Equal(r.ContentMD5, hash.Sum(nil)) {
			err = fmt.Errorf("its Content-MD5 is %x, want %x: %w", r.ContentMD5, hash.Sum(nil), object.ErrUnproved)
		}
		return err
	})
}

// Raise raises the fence of a blob that exists, and leaves its content as it is. From then on,
// writes under smaller tokens are refused. If the blob has the token already, Raise does nothing.
// Options may be nil. They are those of the SDK's SetMetadata (a lease's id, ...), but without
// conditions on the version: the fence sets its own. Errors are those of Put.
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
		o.AccessConditions, access.ModifiedAccessConditions = &access, native.IfMatch(azcore.ETag(seen.ETag))
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
	at := parts.Host
	if account := parts.IPEndpointStyleInfo.AccountName; account != "" { // as an emulator has it
		at += "/" + account
	}
	return parts.Scheme + "://" + at + "/" + parts.ContainerName + "/" + parts.BlobName
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
				return object.Seen{}, errors.New("the response has no ETag: it is not from a blob service")
			}
			return object.Seen{Exists: true, ETag: string(*p.ETag), Metadata: plain(p.Metadata)}, nil
		},
	}
}

// never is a version that no blob has, or nil if the account is in one of Azure's own clouds.
func never(b *blockblob.Client) *object.Seen {
	if native.OfAzure(b.URL()) {
		return nil
	}
	return &object.Seen{Exists: true, ETag: object.NoETag}
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
