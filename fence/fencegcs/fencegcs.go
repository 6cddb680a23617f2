/*
Package fencegcs fences writes to objects of Google Cloud Storage: the object's
metadata holds the token of its last write, and each write is conditional on the
very version whose token was judged.

	object := client.Bucket("my-bucket").Object("orders/state.json")
	err := fencegcs.Put(ctx, object, token, bytes.NewReader(state), nil)
	if errors.Is(err, fence.ErrStale) { ... } // another one leads: the object is as it was

Objects fence themselves one by one: one that the new leader has not written yet
takes an old leader's write. Let a new leader write, or call [Raise], for every
object that it answers for, before it reads what it will go by.

# What is written where

Custom metadata of the object itself: fencingtoken is the token, as
fence.Token.String has it, and fencingwrite a random text, by which a write whose
answer was lost is known again. An object without them, from before there was a
fence, takes any token. What is there and is no token (fence.ErrMalformed), or one
of another election (fence.ErrOtherElection), is never overwritten: correct it, or
remove it, by

	gcloud storage objects update gs://my-bucket/orders/state.json --remove-custom-metadata-keys=fencingtoken

So everything that writes the object has to do it through the fence. A tool that
replaces it takes the fence away, and so does one that deletes it: a deposed
leader's write then makes it anew. Do not delete fenced objects; write an empty
one. Lifecycle rules that delete live objects are to leave them out.

# What it rests on

A write with the preconditions ifGenerationMatch and ifMetagenerationMatch happens
only if the object's content and its metadata are those that were seen, and else
fails with 412 (https://cloud.google.com/storage/docs/request-preconditions); reads
after writes are strongly consistent
(https://cloud.google.com/storage/docs/consistency). A refused write leaves the
object as it is. When another write comes between the look and the write, both are
done again.

A server that only speaks Cloud Storage's API, and takes no notice of preconditions, would keep
nobody out. So with STORAGE_EMULATOR_HOST set, a Put or [Raise] that raises the fence first makes a write
that the server must refuse, with a version that no object has; the Put that makes the object
makes it afterwards. A server that accepts it is an error, and the fence stays as it was. A handle does not
tell of another endpoint that its client has: then nothing is asked.

# What it needs of the bucket

  - One bucket for all: a copy (Storage Transfer Service, for example) has fences of its own. A dual- or
    multi-region is one bucket.
  - No lifecycle rule that deletes: see above. A retention policy or a hold keeps an object, and
    its fence, from being written at all.
  - No cache before the service that keeps metadata.

Anything may answer 200. A write counts as done only if the answer describes the object
with the write's own random text, or the object is looked at, and has it.

The client repeats what failed and may pass until ctx ends, so give ctx a deadline.
Where it ends with the answer outstanding, or the client gives up, the object is
read once more if ctx allows; a write that is found there is reported as done.
fence.ErrStale is certain: the object does not hold what was to be written, and will
not. Any other error of the store leaves open whether it was written, or will be.

# Permissions and costs

storage.objects.get, storage.objects.create and storage.objects.delete (replacing
an object deletes it) for Put, storage.objects.update for Raise: all of them are in
the role Storage Object User (roles/storage.objectUser). A fenced write is a class B
operation (the look) and a class A one (the write); a refused one is a class B
operation alone. An object takes about one write a second
(https://cloud.google.com/storage/quotas).

# What becomes of fences

A fence is in the object. One that is deleted takes its fence along, and an older
version that is restored (from soft deletion, versioning or a backup) brings the older
fence back: leaders deposed since then may write it again. After either, let the leader
in office write the object, or call [Raise], before anything relies on it. Giving up a
Put changes nothing at Google but that nobody hears the answer: it happens as a whole or
not at all, perhaps later.
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

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/internal/object"
)

// Put writes content, from its beginning, to the object if token is admitted. It
// is called with an ObjectHandle without conditions: those are the fence's.
// Prepare may be nil; it sets what else is to be said of the object (ContentType,
// Metadata, ...) and is called for each attempt. By default the Writer's ChunkSize
// is just as large as content needs.
//
// Errors are a *fence.StaleError, the error of token.Check, or wrap fence.ErrMalformed or
// fence.ErrOtherElection for what the metadata holds, which is left alone; or they
// are what the store says, or content. The package comment tells which of them
// leave open what was written. Put may be called by any number of goroutines at
// once; of writes under one token one is the last, whichever.
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

// Raise raises the fence of an object that there is, and leaves its content as it
// is: from then on, writes under smaller tokens are refused. It does nothing where
// the object has the token already. Errors are those of Put.
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
				return object.Seen{}, fmt.Errorf("the answer describes %q with generation %d: something else than the store answered", a.Name, a.Generation)
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
