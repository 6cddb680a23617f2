// Package object is what the fences on objects share: a look at the object, whose metadata has the
// greatest token that it was written under, and a write on condition that the object is still the
// version that was seen.
package object

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// The names of the metadata. Letters only: Azure takes no hyphens, and some
// proxies in front of S3 servers drop headers with underscores.
const (
	// TokenName is that of the token of the last write.
	TokenName = "fencingtoken"
	// WriteName is that of a random text. It lets a writer recognize its write if the response
	// was lost.
	WriteName = "fencingwrite"
)

// NoETag is a version that no object has, for Object.Never.
const NoETag = `"0123456789abcdef0123456789abcdef"`

// Seen is an object as a look found it.
type Seen struct {
	Exists bool
	// Generation and Metageneration are the version on GCS, ETag elsewhere.
	Generation, Metageneration int64
	ETag                       string
	Metadata                   map[string]string
}

// Object is one object of a store.
type Object struct {
	// Package and Place are for errors.
	Package, Place string
	// Look asks for the version and the metadata. If there is no object, that is not an error.
	Look func(ctx context.Context) (Seen, error)
	// Refused reports whether an error of a write is the refusal of its condition.
	Refused func(error) bool
	// Never is a version that no object has, for a store whose server may be an imitation: if
	// it takes no notice of conditions, a deposed leader could write. A call that raises a
	// fence then first tests that the server refuses such a write. Nil: the server is the
	// vendor's own.
	Never *Seen
}

// ErrUnproved is what a Write wraps if the response reports a success but does not prove it. The
// object is then read, and the write counts if it has the text of WriteName that was sent.
var ErrUnproved = errors.New("the response reports a success but does not prove it: it may not be from the store")

// Write writes on condition that the object is still as seen, with metadata that
// has at least marks.
type Write func(ctx context.Context, seen Seen, marks map[string]string) error

// tries is how often a write looks again because another one came between: as
// many concurrent writers of one leadership finish all the same.
const tries = 16

// Put writes under a token. It returns a *fence.StaleError, the error of token.Check, an error of
// the store, or one that wraps fence.ErrMalformed or fence.ErrOtherElection for the object's
// metadata.
func (o Object) Put(ctx context.Context, token fence.Token, write Write) error {
	return o.do(ctx, false, token, write)
}

// Raise raises the fence of an object that exists, and leaves its content alone. Its errors are
// those of Put.
func (o Object) Raise(ctx context.Context, token fence.Token, write Write) error {
	return o.do(ctx, true, token, write)
}

func (o Object) do(ctx context.Context, raise bool, token fence.Token, write Write) error {
	failed := func(err error) error {
		doing := "writing"
		if raise {
			doing = "raising the fence of"
		}
		return fmt.Errorf("%s: %s %s under %v: %w", o.Package, doing, o.Place, token, redact.Error(err))
	}
	if err := token.Check(token.Election); err != nil {
		return failed(err)
	}
	id := rand.Text()
	var refused error
	proved := o.Never == nil
	for range tries {
		seen, err := o.Look(ctx)
		if err != nil {
			return failed(err)
		}
		if seen.Mark(WriteName) == id {
			return nil // a retry of the client's met its own write, and was refused
		}
		if err := seen.admits(token); err != nil {
			return failed(err)
		}
		n, _ := seen.number(token.Election) // which admits has read, too
		switch {
		case raise && !seen.Exists:
			return failed(errors.New("there is no such object: the first write makes it and its fence"))
		case raise && n == token.Number:
			return nil
		case seen.Exists && !proved && n < token.Number:
			if err := o.prove(ctx, *o.Never, seen, write); err != nil {
				return failed(err)
			}
			proved = true
		}
		switch refused = write(ctx, seen, map[string]string{TokenName: token.String(), WriteName: id}); {
		case refused == nil:
			if !seen.Exists && !proved {
				if err := o.prove(ctx, seen, seen, write); err != nil {
					return failed(err)
				}
			}
			return nil
		case !o.Refused(refused):
			if err := o.readBack(ctx, token, id, refused); err != nil {
				return failed(err)
			}
			return nil
		}
	}
	return failed(fmt.Errorf("others keep writing in between: after %d tries: %w", tries, refused))
}

// prove makes a write that the server must refuse, since the object is not as in at. A server that
// does not refuse it has the fence as it was seen, so that it is found out again the next time.
func (o Object) prove(ctx context.Context, at, seen Seen, write Write) error {
	marks := map[string]string{TokenName: seen.Mark(TokenName), WriteName: rand.Text()}
	var err error
	for range 3 { // an answer may be lost
		switch err = write(ctx, at, marks); {
		case err != nil && o.Refused(err):
			return nil
		case err == nil || errors.Is(err, ErrUnproved):
			return errors.Join(errors.New("the server has accepted a write whose condition does not hold: it takes no notice of conditions, so it cannot keep out a deposed leader. "+
				"Use another server, or a version of this one that honors conditional writes"), err)
		case ctx.Err() != nil:
			return err
		}
	}
	return fmt.Errorf("testing that the server refuses a write whose condition does not hold: %w", err)
}

// readBack finds out what became of a write that failed otherwise than by its
// condition, or whose answer proves nothing: it may have landed. It returns nil where
// it did land.
func (o Object) readBack(ctx context.Context, token fence.Token, id string, failure error) error {
	if ctx.Err() != nil {
		return failure
	}
	switch seen, err := o.Look(ctx); {
	case err != nil:
		return failure
	case seen.Mark(WriteName) == id:
		return nil
	default:
		if stale := seen.admits(token); stale != nil {
			return fmt.Errorf("%w (%w)", stale, failure)
		}
	}
	return failure
}

// Mark returns a value of the metadata. Azure and some proxies change the case of
// names.
func (s Seen) Mark(name string) string {
	for k, v := range s.Metadata {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// number is that of the token in the metadata, or NoElections where there is none.
func (s Seen) number(election string) (leaderelection.ElectionNumber, error) {
	text := s.Mark(TokenName)
	if text == "" {
		return leaderelection.NoElections, nil
	}
	t, err := fence.ParseToken(text)
	if err == nil {
		err = t.Check(election)
	}
	if err != nil {
		return 0, fmt.Errorf("its metadata %s: %w: correct it, or remove it", TokenName, err)
	}
	return t.Number, nil
}

// admits returns nil where token may write.
func (s Seen) admits(token fence.Token) error {
	n, err := s.number(token.Election)
	if err == nil && token.Number < n {
		err = &fence.StaleError{Token: token, Greatest: n}
	}
	return err
}

// With returns a copy of metadata with marks, which replace entries of the same names.
func With(metadata, marks map[string]string) map[string]string {
	m := make(map[string]string, len(metadata)+len(marks))
	for k, v := range metadata {
		if _, ok := marks[strings.ToLower(k)]; !ok {
			m[k] = v
		}
	}
	maps.Copy(m, marks)
	return m
}
