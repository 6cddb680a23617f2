/*
Package fencegcs fences writes to objects of Google Cloud Storage. The object's metadata holds the
token of its last write. Each write judges that token, and succeeds only if the object is still the
version that was judged.

	object := client.Bucket("my-bucket").Object("orders/state.json")
	err := fencegcs.Put(ctx, object, token, bytes.NewReader(state), nil)
	if errors.Is(err, fence.ErrStale) { ... } // another leads: the object is as it was

Each object is its own fence: until the new leader has written an object, the object accepts an old
leader's write. So a new leader writes each of its objects, or calls [Raise] for it, before it reads
the data that it relies on.

# What is written where

Put sets two keys of the object's custom metadata:

  - fencingtoken is the token, in the form of fence.Token.String.
  - fencingwrite is a random text. It lets Put recognize its own write if the response was lost.

An object without them, from before there was a fence, accepts any token. If fencingtoken is not a
token (fence.ErrMalformed), or is of another election (fence.ErrOtherElection), Put overwrites
nothing. Correct it, or remove it:

	gcloud storage objects update gs://my-bucket/orders/state.json --remove-custom-metadata-keys=fencingtoken

A tool that replaces or deletes the object removes the fence, and a deposed leader can then write
again: write through the fence alone, and in place of a delete write an empty object.

# What it rests on

A write with the preconditions ifGenerationMatch and ifMetagenerationMatch happens only if the
object's content and metadata are those that were seen. Otherwise it fails with 412
(https://cloud.google.com/storage/docs/request-preconditions) and leaves the object as it is. Reads
after writes are strongly consistent (https://cloud.google.com/storage/docs/consistency). If another
write comes between the look and the write, Put repeats both.

A server that imitates Cloud Storage's API but takes no notice of preconditions would keep nobody
out. So with STORAGE_EMULATOR_HOST set, a Put or [Raise] that raises the fence first makes a write
that the server must refuse, for a version that no object has. A Put that makes the object does so
afterwards. If the server accepts that write, Put returns an error, and the fence stays as it was.
If the client has another endpoint without STORAGE_EMULATOR_HOST, nothing is checked.

# What it needs of the bucket

  - One bucket for all: a copy (Storage Transfer Service, for example) has fences of its own. A
    dual- or multi-region is one bucket.
  - No lifecycle rule that deletes live objects. A retention policy or a hold prevents all writes of
    an object and its fence.
  - No cache in front of the service that keeps metadata.

A write counts as done only if the response describes the object with the write's own random text.
Otherwise Put looks at the object for that text.

The client retries temporary errors until ctx ends, so give ctx a deadline. If the client gives up
before ctx ends, Put reads the object once more, and returns nil if it finds its own write.
fence.ErrStale is certain: the object does not have your content, and will not get it. After any
other error, the write may have happened, or may still happen.

# Permissions and costs

Put needs storage.objects.get, storage.objects.create and storage.objects.delete (replacing an
object deletes it). Raise needs storage.objects.update. The role Storage Object User
(roles/storage.objectUser) has them all. A fenced write is a class B operation (the look) and a
class A one (the write). A refused write is only a class B operation. An object takes about one
write a second (https://cloud.google.com/storage/quotas).

# What becomes of fences

The fence is part of the object, and goes with it. If you restore an older version (from soft
deletion, versioning or a backup), the older fence comes back, and leaders deposed since then can
write again. After either, let the leader in office write the object, or call [Raise], before
anything relies on it.

A Put that you give up may still happen, as a whole or not at all, perhaps later.
*/
package fencegcs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection/deciders/internal/object"
	"github.com/c8e606e4/leaderelection/fence"
)

// Put writes content, from its beginning, to the object if token is admitted. Give it an
// ObjectHandle without conditions: the fence sets its own. Prepare may be nil. It is called for
// each attempt, to set what else belongs to the object (ContentType, Metadata, ...). By default the
// Writer's ChunkSize is just large enough for content, up to 16 MiB.
//
// It returns a *fence.StaleError, the error of token.Check, or an error of the store or of content.
// If the metadata holds something else than a token of this election, the error wraps
// fence.ErrMalformed or fence.ErrOtherElection, and Put leaves the metadata alone. The package
// comment says after which errors the write may have happened. Put may be called by any number of
// goroutines at once. Of concurrent writes under one token, any may be the last.
func Put(ctx context.Context, o *storage.ObjectHandle, token fence.Token, content io.ReadSeeker, prepare func(*storage.Writer)) error {
	size, err := content.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("fencegcs: the content of %s: %w", place(o), err)
	}
	return fenced(o).Put(ctx, token, func(ctx context.Context, seen object.Seen, marks map[string]string) error {
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return write(ctx, o.If(only(seen)), content, size, marks, prepare)
	})
}

func write(ctx context.Context, o *storage.ObjectHandle, content io.Reader, size int64, marks map[string]string, prepare func(*storage.Writer)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := o.NewWriter(ctx)
	// A buffer that the whole content fits in, and that the client can repeat.
	// The default of 16 MiB would be allocated for each write.
	const unit = 256 << 10
	w.ChunkSize = int(min(16<<20, (size/unit+1)*unit))
	if prepare != nil {
		prepare(w)
	}
	w.Metadata = object.With(w.Metadata, marks)
	if _, err := io.Copy(w, content); err != nil {
		cancel() // else Close would make an object of what there is
		if closed := w.Close(); closed != nil && !errors.Is(closed, context.Canceled) {
			err = closed // says more: the copy only knows that its pipe has broken
		}
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return proved(o, w.Attrs(), marks)
}

// proved returns an error unless an answer describes the object o as one that is stored,
// with the random text of this very write.
func proved(o *storage.ObjectHandle, a *storage.ObjectAttrs, marks map[string]string) error {
	if a == nil || a.Name != o.ObjectName() || a.Generation <= 0 || a.Metadata[object.WriteName] != marks[object.WriteName] {
		return object.ErrUnproved
	}
	return nil
}

// Raise raises the fence of an object that exists, and leaves its content as it is. From then on,
// writes under smaller tokens are refused. If the object has the token already, Raise does nothing.
// Errors are those of Put.
func Raise(ctx context.Context, o *storage.ObjectHandle, token fence.Token) error {
	return fenced(o).Raise(ctx, token, func(ctx context.Context, seen object.Seen, marks map[string]string) error {
		a, err := o.If(only(seen)).Update(ctx, storage.ObjectAttrsToUpdate{Metadata: object.With(seen.Metadata, marks)})
		if err != nil {
			return err
		}
		return proved(o, a, marks)
	})
}

func place(o *storage.ObjectHandle) string { return "gs://" + o.BucketName() + "/" + o.ObjectName() }

func fenced(o *storage.ObjectHandle) object.Object {
	return object.Object{
		Package: "fencegcs", Place: place(o), Refused: refused, Never: never(),
		Look: func(ctx context.Context) (object.Seen, error) {
			a, err := o.Attrs(ctx)
			if errors.Is(err, storage.ErrObjectNotExist) {
				return object.Seen{}, nil
			}
			if err != nil {
				return object.Seen{}, err
			}
			if a.Generation <= 0 || a.Name != o.ObjectName() {
				return object.Seen{}, fmt.Errorf("the response describes %q with generation %d: it is not from the store", a.Name, a.Generation)
			}
			return object.Seen{Exists: true, Generation: a.Generation, Metageneration: a.Metageneration, Metadata: a.Metadata}, nil
		},
	}
}

// never is a version that no object has, or nil: then the server is Google's, as far as is known.
// A handle does not tell of its client's endpoint.
func never() *object.Seen {
	if os.Getenv("STORAGE_EMULATOR_HOST") == "" {
		return nil
	}
	return &object.Seen{Exists: true, Generation: 1, Metageneration: 1 << 40}
}

// only is the condition that the object is as it was seen. The generation alone
// would miss that Raise has raised the fence since.
func only(seen object.Seen) storage.Conditions {
	if !seen.Exists {
		return storage.Conditions{DoesNotExist: true}
	}
	return storage.Conditions{GenerationMatch: seen.Generation, MetagenerationMatch: seen.Metageneration}
}

// refused reports whether the object is not as it was seen: 412, or 409 where
// another request was under way, or what they are with gRPC; or Raise's object is
// gone.
func refused(err error) bool {
	var answer *googleapi.Error
	if errors.As(err, &answer) && (answer.Code == http.StatusPreconditionFailed || answer.Code == http.StatusConflict) {
		return true
	}
	code := status.Code(err)
	return code == codes.FailedPrecondition || code == codes.Aborted || errors.Is(err, storage.ErrObjectNotExist)
}
