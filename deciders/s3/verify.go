package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/s3/internal/answers"
)

// VerifyConditionalWrites tests whether the server honors the conditions that an election needs:
//
//   - a write that must create does not overwrite;
//   - a write with an old ETag changes nothing;
//   - of several writes at once one wins.
//
// If the server fails, the error wraps leaderelection.ErrPermanent and says what the server did.
// Any other error says that the test was not possible. Passing is evidence, not proof.
//
// It is for set-up and diagnosis. It makes some hundred requests, in a few seconds. It uses objects
// of its own, whose keys begin with the election's key and ".verify-", and deletes them if the
// credentials allow that. You may call it during the election.
func (d *Decider) VerifyConditionalWrites(ctx context.Context) error {
	const doing = "verifying conditional writes of"
	if err := d.election.Ready(ctx); err != nil {
		return d.election.Failed(ctx, doing, err)
	}
	v := &verification{b: d.b, prefix: d.b.key[:min(len(d.b.key), maxKey-64)] + ".verify-" + rand.Text()[:16]}
	defer v.clean(ctx)
	for _, step := range []func(context.Context) error{v.conditions, v.races} {
		if err := step(ctx); err != nil {
			return d.election.Failed(ctx, doing, err)
		}
	}
	return nil
}

// verification is one run.
type verification struct {
	b      *backend
	prefix string
	keys   []string
	count  int
}

// key returns the key of a new object.
func (v *verification) key() string {
	key := fmt.Sprintf("%s-%d", v.prefix, len(v.keys))
	v.keys = append(v.keys, key)
	return key
}

// content is never the same twice, so that no two versions have one ETag.
func (v *verification) content() []byte {
	v.count++
	return fmt.Appendf(nil, "leaderelection verifies that this server honours conditional writes: %s %d\n", v.prefix, v.count)
}

// conditions tries each condition, one request at a time.
func (v *verification) conditions(ctx context.Context) error {
	if err := v.mustRefuse(ctx, v.key(), &token{etag: "0123456789abcdef0123456789abcdef"}, "If-Match on an object that does not exist"); err != nil {
		return err
	}
	key := v.key()
	first, _, err := v.mustWrite(ctx, key, nil, "If-None-Match: * on an object that does not exist")
	if err != nil {
		return err
	}
	if err := v.mustRefuse(ctx, key, nil, "If-None-Match: * on an object that exists"); err != nil {
		return err
	}
	second, data, err := v.mustWrite(ctx, key, first, "If-Match with the ETag that the write before returned")
	if err != nil {
		return err
	}
	if second.etag == first.etag {
		return store.Wrong("two different contents have the ETag %q: the server's ETags are no versions", first.etag)
	}
	if err := v.mustRefuse(ctx, key, first, "If-Match with an old ETag"); err != nil {
		return err
	}
	var got []byte
	var read *token
	err = patiently(ctx, func() (err error) { got, read, err = v.b.get(ctx, key); return err })
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got, data):
		return store.Wrong("a read after the write returned %q, not what was written: reads are stale, or a write was lost", got)
	case !v.b.opaque && !read.kms && !second.of(data):
		return store.Wrong("the ETag %q is not the MD5 of its content: if this is the server's own way, set OpaqueETags", second.etag)
	case read.etag != second.etag:
		return store.Wrong("a read returned the ETag %q, and the write %q: set UnquotedETag if that is what differs, else the server's ETags are no versions", read.etag, second.etag)
	}
	return nil
}

// mustWrite makes a write that the server must accept.
func (v *verification) mustWrite(ctx context.Context, key string, at *token, what string) (t *token, data []byte, err error) {
	data = v.content()
	tries := 0
	err = patiently(ctx, func() (err error) {
		tries++
		t, err = v.b.put(ctx, key, data, at)
		return err
	})
	switch {
	case !answers.Refused(err):
		return t, data, err
	case tries > 1: // the one before, whose answer was lost, may have led to it
		return nil, nil, fmt.Errorf("it is not known whether the server accepts %s: %v", what, err)
	}
	return nil, nil, store.Wrong("the server refused %s; it may want another form of it, see UnquotedETag: %v", what, err)
}

// mustRefuse makes a write that the server must refuse.
func (v *verification) mustRefuse(ctx context.Context, key string, at *token, what string) error {
	err := patiently(ctx, func() error { _, err := v.b.put(ctx, key, v.content(), at); return err })
	switch {
	case err == nil:
		return store.Wrong("the server accepted %s: it ignores the condition, and would let several lead at once", what)
	case answers.Refused(err):
		return nil
	}
	return err
}

// races has several write at once, with the same condition.
func (v *verification) races(ctx context.Context) error {
	const rounds, updates = 3, 4
	for range rounds {
		key := v.key()
		var at *token
		for range 1 + updates {
			err := patiently(ctx, func() error {
				next, err := v.race(ctx, key, at)
				if err == nil {
					at = next
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// race returns the version that is there after a race from the version at.
func (v *verification) race(ctx context.Context, key string, at *token) (*token, error) {
	const racers = 8
	var wg sync.WaitGroup
	var data [racers][]byte
	var won [racers]*token
	var errs [racers]error
	for i := range racers {
		data[i] = v.content()
		wg.Add(1)
		go func() {
			defer wg.Done()
			won[i], errs[i] = v.b.put(ctx, key, data[i], at)
		}()
	}
	wg.Wait()
	winner := -1
	for i := range racers {
		if won[i] == nil {
			continue
		}
		if winner >= 0 {
			return nil, store.Wrong("several of %d writes at once with the same condition were accepted: the server does not decide and write in one step, and would let several lead at once", racers)
		}
		winner = i
	}
	var got []byte
	var now *token
	err := patiently(ctx, func() (err error) { got, now, err = v.b.get(ctx, key); return err })
	switch {
	case winner < 0 && (err != nil || at != nil && now.etag == at.etag):
		return nil, fmt.Errorf("none of %d writes at once was accepted, so nothing is shown: %v", racers, errors.Join(errs[:]...))
	case err != nil:
		return nil, err
	case winner >= 0 && !bytes.Equal(got, data[winner]):
		return nil, store.Wrong("of %d writes at once one was accepted, and a read returned another's content: %q", racers, got)
	}
	return now, nil
}

// patiently tries again, a few times, if the server is busy.
func patiently(ctx context.Context, try func() error) error {
	const tries = 6
	for n := 1; ; n++ {
		err := try()
		if err == nil || answers.Refused(err) || errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, errNoETag) || n == tries {
			return err
		}
		if v := answers.Judge(err, false); v.Permanent || v.Denied {
			return err
		}
		again := time.NewTimer(100 * time.Millisecond << n)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return err
		}
	}
}

// clean deletes what was written, even if ctx has ended.
func (v *verification) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, key := range v.keys {
		_, _ = v.b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &v.b.bucket, Key: &key, ExpectedBucketOwner: given(v.b.o.ExpectedBucketOwner)}, v.b.call...)
	}
}

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It reads the record, and looks whether a lifecycle
// rule will delete it, and whether replication has written it or copies it. It needs only the
// permission to read.
func (d *Decider) Durability(ctx context.Context) (warnings []durability.Warning, err error) {
	if answers.Directory(d.b.bucket) {
		warnings = append(warnings, durability.Warning{
			Detail: "a directory bucket keeps the record in one zone: if the zone is lost, the count is, too",
			Advice: "use a general purpose bucket if something is fenced by its numbers",
		})
	}
	var out *s3.GetObjectOutput
	if err = d.election.Ready(ctx); err == nil {
		out, err = d.b.ask(ctx, d.b.key)
	}
	switch {
	case answers.Missing(err):
		err = errors.New("lifecycle rules and replication are not known, since there is no record yet: ask again after somebody has led")
		fallthrough
	case err != nil:
		return warnings, d.election.Failed(ctx, "examining", err)
	}
	_ = out.Body.Close()
	return append(warnings, examine(out)...), nil
}

// examine says what an answer tells of the bucket.
func examine(out *s3.GetObjectOutput) (warnings []durability.Warning) {
	warn := func(advice, detail string) {
		warnings = append(warnings, durability.Warning{Detail: detail, Advice: advice})
	}
	if when := aws.ToString(out.Expiration); when != "" {
		warn("limit the rule to other keys", "a lifecycle rule deletes the record, and its count, if nobody leads until then: "+when)
	}
	switch out.ReplicationStatus {
	case "":
	case types.ReplicationStatusReplica:
		warn("have all candidates name one and the same bucket, and no rule replicate into it",
			"replication has written this record: it is a copy from another bucket, whose candidates lead as well, and replication ignores conditions")
	default:
		warn("start no candidate on the copy; after a fail-over to it, reset the record there when all candidates here have been stopped for a term",
			"the record is replicated to another bucket, and the copy lags behind (x-amz-replication-status "+string(out.ReplicationStatus)+")")
	}
	return warnings
}
