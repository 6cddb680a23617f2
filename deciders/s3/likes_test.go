//go:build go1.25

package s3_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// The servers here are made to differ from Amazon's as servers that
// speak S3 do.

// quirk puts a peculiarity in front of a server.
type quirk func(w http.ResponseWriter, r *http.Request, server http.Handler)

// like returns a server with a quirk, and a client of it.
func like(t testing.TB, q quirk) *awss3.Client {
	t.Helper()
	server := fakes3.Handler()
	createBucket(t, server, "elections")
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { q(w, r, server) })
	return reach(t, h)
}

// changed answers as the server does, with another ETag.
func changed(w http.ResponseWriter, r *http.Request, server http.Handler, change func(string) string) {
	a := httptest.NewRecorder()
	server.ServeHTTP(a, r)
	if etag := a.Header().Get("ETag"); etag != "" {
		a.Header().Set("ETag", change(etag))
	}
	answer(w, a)
}

func answer(w http.ResponseWriter, a *httptest.ResponseRecorder) {
	for name, values := range a.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(a.Code)
	_, _ = w.Write(a.Body.Bytes())
}

func failWith(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(refusal(status, code).Body))
}

// exists asks the server for the object of r.
func exists(r *http.Request, server http.Handler) (etag string, there bool) {
	head := r.Clone(context.Background())
	head.Method, head.Body, head.Header = http.MethodHead, http.NoBody, http.Header{}
	a := httptest.NewRecorder()
	server.ServeHTTP(a, head)
	return a.Header().Get("ETag"), a.Code == http.StatusOK
}

func bareETag(etag string) string { return strings.Trim(etag, `"`) }

func sameETag(etag string) string { return etag }

// quoting is a server that takes If-Match with quotes only, or only without, and changes its ETags.
func quoting(quotes bool, change func(string) string) quirk {
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		if m := r.Header.Get("If-Match"); m != "" && strings.Contains(m, `"`) != quotes {
			failWith(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		changed(w, r, server, change)
	}
}

// Servers that honour conditions in their own way.
func TestLikesThatConform(t *testing.T) {
	stores.Nightly(t, "the suite once more")
	for name, c := range map[string]struct {
		q quirk
		o s3.Options
	}{
		// Some servers compare If-Match as a string with an ETag that has no quotes.
		"BareETags": {quoting(false, bareETag), s3.Options{UnquotedETag: true}},
		// Others leave the quotes out of their answers and want them in requests.
		"BareETagsInAnswers": {quoting(true, bareETag), s3.Options{}},
		// A proxy that compresses makes ETags weak, but only of reads.
		"WeakETags": {func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			changed(w, r, server, func(etag string) string {
				if r.Method == http.MethodGet {
					return "W/" + etag
				}
				return etag
			})
		}, s3.Options{}},
		// Some servers' ETags are something else.
		"OpaqueETags": {rotated, s3.Options{OpaqueETags: true}},
		// Under SSE-KMS they are, and the answer says so.
		"KMS": {func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			w.Header().Set("X-Amz-Server-Side-Encryption", "aws:kms")
			rotated(w, r, server)
		}, s3.Options{}},
		// Older servers know no checksum trailers, and refuse them.
		"NoTrailers": {noTrailers, s3.Options{}},
		// Ceph says 412, Amazon 404.
		"MissingIs412": {func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			if _, there := exists(r, server); r.Header.Get("If-Match") != "" && !there {
				failWith(w, http.StatusPreconditionFailed, "PreconditionFailed")
				return
			}
			server.ServeHTTP(w, r)
		}, s3.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := s3.NewDecider(like(t, c.q), "elections", "one", &c.o).VerifyConditionalWrites(t.Context()); err != nil {
				t.Error(err)
			}
			var elections atomic.Int64
			decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
				client, key := like(t, c.q), string(rune('a'+elections.Add(1)))
				return func() leaderelection.RaceDecider { return s3.NewDecider(client, "elections", key, &c.o) }
			}, &decidertest.Options{Rounds: 5})
		})
	}
}

// noTrailers refuses what the SDK sends by default over TLS.
func noTrailers(w http.ResponseWriter, r *http.Request, server http.Handler) {
	if r.Header.Get("X-Amz-Trailer") != "" || strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") || r.Header.Get("X-Amz-Sdk-Checksum-Algorithm") != "" {
		failWith(w, http.StatusNotImplemented, "NotImplemented")
		return
	}
	server.ServeHTTP(w, r)
}

// Servers on which no election can be held must be found out.
func TestLikesThatDoNot(t *testing.T) {
	without := func(header string) quirk {
		return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			r.Header.Del(header)
			server.ServeHTTP(w, r)
		}
	}
	for name, c := range map[string]struct {
		q    quirk
		says string
	}{
		"IgnoresIfMatch":     {without("If-Match"), "accepted If-Match"},
		"IgnoresIfNoneMatch": {without("If-None-Match"), "accepted If-None-Match"},
		// MinIO did so in August 2025.
		"IgnoresIfMatchOfMissing": {func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			if _, there := exists(r, server); !there {
				r.Header.Del("If-Match")
			}
			server.ServeHTTP(w, r)
		}, "object that does not exist"},
		"DecidesBeforeItWrites": {checkThenWrite("If-Match", "If-None-Match"), "several of"},
		"CreatesBeforeItLooks":  {checkThenWrite("If-None-Match"), "several of"},
		"ConstantETags": {func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			if r.Header.Get("If-Match") == `"constant"` {
				etag, _ := exists(r, server)
				r.Header.Set("If-Match", etag)
			}
			changed(w, r, server, func(string) string { return `"constant"` })
		}, "no versions"},
		"NoETags":        {quoting(true, func(string) string { return "" }), "no ETag"},
		"NoMD5s":         {rotated, "set OpaqueETags"},
		"StaleReads":     {staleReads(), "reads are stale"},
		"NoConditions":   {refusing(func(*http.Request) bool { return true }, http.StatusNotImplemented, "NotImplemented", "no conditions"), "conditional writes"},
		"WantsBareETags": {quoting(false, sameETag), "UnquotedETag"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := s3.NewDecider(like(t, c.q), "elections", "one", nil).VerifyConditionalWrites(t.Context())
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("VerifyConditionalWrites = %v, want an error that says %q", err, c.says)
				}
				if permanent := errors.Is(err, leaderelection.ErrPermanent); permanent != (name != "NoETags") {
					t.Errorf("wraps ErrPermanent: %v, in %v", permanent, err)
				}
			})
		})
	}
}

// checkThenWrite is a server that looks whether a condition holds, and writes a
// moment later.
func checkThenWrite(headers ...string) quirk {
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		for _, name := range headers {
			etag, there := exists(r, server)
			switch want := r.Header.Get(name); {
			case want == "":
			case want == "*" && there, want != "*" && want != etag:
				failWith(w, http.StatusPreconditionFailed, "PreconditionFailed")
				return
			}
			r.Header.Del(name)
		}
		time.Sleep(time.Millisecond) // of virtual time
		server.ServeHTTP(w, r)
	}
}

// staleReads is a server whose reads return what the last one should have.
func staleReads() quirk {
	var mu sync.Mutex
	var before, now []byte
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		a := httptest.NewRecorder()
		mu.Lock()
		defer mu.Unlock()
		var sent strings.Builder
		if r.Method == http.MethodPut {
			r.Body = io.NopCloser(io.TeeReader(r.Body, &sent))
		}
		server.ServeHTTP(a, r)
		if r.Method == http.MethodPut && a.Code == http.StatusOK {
			before, now = now, []byte(sent.String())
		}
		if r.Method == http.MethodGet && before != nil {
			a.Body.Reset()
			a.Body.Write(before)
			a.Header().Del("Content-Length")
		}
		answer(w, a)
	}
}

// Cloudflare's R2 takes one write a second on one object: that costs patience,
// not more.
func TestOneWriteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		last := map[string]time.Time{}
		client := like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			mu.Lock()
			wait := r.Method == http.MethodPut && time.Since(last[r.URL.Path]) < time.Second
			if r.Method == http.MethodPut && !wait {
				last[r.URL.Path] = time.Now()
			}
			mu.Unlock()
			if wait {
				failWith(w, http.StatusTooManyRequests, "TooManyRequests")
				return
			}
			server.ServeHTTP(w, r)
		})
		if err := s3.NewDecider(client, "elections", "one", nil).VerifyConditionalWrites(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Servers may put together the answer to a read from two versions. A content that is
// older than the ETag that came with it would be overwritten unseen.
func TestReadOfTwoVersions(t *testing.T) {
	for name, etag := range map[string]func(string) string{
		"MD5s":   sameETag,
		"others": func(s string) string { return strings.Map(rotate, s) },
	} {
		o := &s3.Options{OpaqueETags: name == "others"}
		for _, older := range []string{"content", "ETag"} { // versitygw's are of the second kind
			for skip := range 2 { // that many reads before are of one version
				t.Run(fmt.Sprintf("%s/older %s/%d", name, older, skip), func(t *testing.T) {
					var between func()
					gets := 0
					client := like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
						if m := r.Header.Get("If-Match"); m != "" {
							r.Header.Set("If-Match", etag(m)) // its own inverse
						}
						f := between
						if gets++; r.Method != http.MethodGet || f == nil || gets <= skip {
							changed(w, r, server, etag)
							return
						}
						between = nil
						before, after := httptest.NewRecorder(), httptest.NewRecorder()
						changed(before, r, server, etag)
						f()
						changed(after, r, server, etag)
						if older == "ETag" {
							before, after = after, before
						}
						before.Header().Set("ETag", after.Header().Get("ETag"))
						answer(w, before)
					})
					leader, other := s3.NewDecider(client, "elections", "k", o), s3.NewDecider(client, "elections", "k", o)
					feedtest.Write(t, leader, 1, nil)
					e := feedtest.Read(t, leader)
					gets = 0
					between = func() {
						e.LeaderID, e.ElectionNumber = "b", 2
						if _, err := leader.WriteEntry(t.Context(), e); err != nil {
							t.Error(err)
						}
					}
					seen := feedtest.Read(t, other)
					between = nil
					claim := *seen
					claim.LeaderID, claim.ElectionNumber = "c", seen.ElectionNumber+1
					if _, err := other.WriteEntry(t.Context(), &claim); seen.LeaderID != "b" && err == nil && e.LeaderID == "b" {
						t.Errorf("the record of b was replaced unseen, by a token that came with that of %s", seen.LeaderID)
					}
				})
			}
		}
	}
}

// rotated is a server whose ETags are no MD5s, though they look like some.
func rotated(w http.ResponseWriter, r *http.Request, server http.Handler) {
	if m := r.Header.Get("If-Match"); m != "" {
		r.Header.Set("If-Match", strings.Map(rotate, m))
	}
	changed(w, r, server, func(etag string) string { return strings.Map(rotate, etag) })
}

// rotate is its own inverse, on the digits of an ETag.
func rotate(r rune) rune {
	const hex = "0123456789abcdef"
	if i := strings.IndexRune(hex, r); i >= 0 {
		return rune(hex[15-i])
	}
	return r
}

// If all answers are of two versions, reading fails, and says why.
func TestReadsOfTwoVersionsOnly(t *testing.T) {
	n := 0
	client := like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		changed(w, r, server, func(s string) string {
			if n++; r.Method == http.MethodGet {
				return fmt.Sprintf(`"%032x"`, n)
			}
			return s
		})
	})
	d := s3.NewDecider(client, "elections", "k", nil)
	feedtest.Write(t, d, 1, nil)
	feedtest.Passing(t, feedtest.ReadError(t, d), "does not fit its ETag")
}

// checksummed reports whether an upload has a checksum of any kind.
func checksummed(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Checksum-") || name == "X-Amz-Trailer" || name == "Content-Md5" {
			return true
		}
	}
	return false
}

// refusing answers uploads with an error of the server's own if they are so.
func refusing(so func(*http.Request) bool, status int, code, message string) quirk {
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		if r.Method != http.MethodPut || !so(r) {
			server.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.Replace(refusal(status, code).Body, "said the server", message, 1))
	}
}

// A bucket with Object Lock takes uploads with a checksum alone; many servers know Content-MD5 and no
// other. A server that refuses the checksum that it is sent is not taken for one that knows no
// conditions. The words are those of S3, R2, B2, and s3proxy.
func TestChecksums(t *testing.T) {
	extra := func(r *http.Request) bool {
		return r.Header.Get("X-Amz-Trailer") != "" || r.Header.Get("X-Amz-Sdk-Checksum-Algorithm") != "" || r.Header.Get("X-Amz-Checksum-Crc32") != ""
	}
	const leaveOut = "leave out Options.ChecksumAlgorithm"
	for name, c := range map[string]struct {
		q        quirk
		bare, is string // what is said without a ChecksumAlgorithm, and with one; empty: it writes
	}{
		"object lock": {refusing(func(r *http.Request) bool { return !checksummed(r) }, http.StatusBadRequest, "InvalidRequest",
			"Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters"), "", ""},
		"R2":      {refusing(extra, http.StatusNotImplemented, "NotImplemented", "Header 'x-amz-checksum-crc32' with value '8FJbTw==' not implemented"), "", leaveOut},
		"B2":      {refusing(extra, http.StatusBadRequest, "InvalidArgument", "Unsupported header 'x-amz-sdk-checksum-algorithm' received for this API call."), "", leaveOut},
		"s3proxy": {refusing(extra, http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented."), "", leaveOut},
		"no conditions": {refusing(func(*http.Request) bool { return true }, http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented."),
			"does not implement conditional writes: it cannot", leaveOut},
	} {
		for algorithm, says := range map[types.ChecksumAlgorithm]string{"": c.bare, types.ChecksumAlgorithmCrc32: c.is} {
			d := s3.NewDecider(like(t, c.q), "elections", "one", &s3.Options{ChecksumAlgorithm: algorithm})
			_, err := d.WriteEntry(t.Context(), &first)
			if says != "" {
				feedtest.Permanent(t, err, says)
			} else if err != nil {
				t.Errorf("%s, %q: %v", name, algorithm, err)
			}
		}
	}
}

// directory is a directory bucket, as Amazon documents them: each request but CreateSession has a
// session's token, which lasts for some minutes; Content-MD5 is not known; ETags are random; and a
// bucket that was not used for long answers 503 for a while.
type directory struct {
	server http.Handler

	mu       sync.Mutex
	sleepy   int               // how many answers are 503 yet
	sessions []string          // the tokens that count
	etags    map[string]string // by those of the server
}

const bucketOfDirectory = "elections--use1-az4--x-s3"

func (d *directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch _, session := r.URL.Query()["session"]; {
	case !strings.HasPrefix(r.Host+r.URL.Host, bucketOfDirectory+".s3express-use1-az4.us-east-1.amazonaws.com"):
		failWith(w, http.StatusBadRequest, "IncorrectEndpoint")
		return
	case session:
		token := rand.Text()
		d.sessions = append(d.sessions, token)
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprintf(w, "<CreateSessionResult><Credentials><SessionToken>%s</SessionToken><SecretAccessKey>s</SecretAccessKey><AccessKeyId>k</AccessKeyId><Expiration>%s</Expiration></Credentials></CreateSessionResult>",
			token, time.Now().Add(5*time.Minute).UTC().Format(time.RFC3339))
		return
	case !slices.Contains(d.sessions, r.Header.Get("X-Amz-S3session-Token")):
		failWith(w, http.StatusForbidden, "AccessDenied")
		return
	case r.Header.Get("Content-MD5") != "":
		failWith(w, http.StatusNotImplemented, "NotImplemented")
		return
	}
	if d.sleepy > 0 {
		d.sleepy--
		failWith(w, http.StatusServiceUnavailable, "ServiceUnavailable")
		return
	}
	for own, random := range d.etags {
		if r.Header.Get("If-Match") == random {
			r.Header.Set("If-Match", own)
		}
	}
	r.URL.Path = "/elections" + r.URL.Path // as the server here has it
	a := httptest.NewRecorder()
	d.server.ServeHTTP(a, r)
	if own := a.Header().Get("ETag"); own != "" {
		if d.etags[own] == "" {
			d.etags[own] = `"` + strings.ToLower(rand.Text()) + `"`
		}
		a.Header().Set("ETag", d.etags[own])
	}
	answer(w, a)
}

// Elections in a directory bucket, by the client's own sessions and endpoints.
func TestDirectoryBucket(t *testing.T) {
	var elections atomic.Int64
	newBucket := func(t testing.TB) (*directory, *awss3.Client) {
		d := &directory{server: fakes3.Handler(), etags: map[string]string{}}
		createBucket(t, d.server, "elections")
		return d, awss3.New(awss3.Options{
			Region: "us-east-1", Credentials: as("root"), HTTPClient: &http.Client{Transport: &httpfault.Transport{Handler: d}},
			RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		})
	}
	bucket, client := newBucket(t)
	d := s3.NewDecider(client, bucketOfDirectory, "asleep", nil)
	bucket.sleepy = 1
	feedtest.Passing(t, feedtest.WriteError(t, d, 1, nil)) // the bucket is inactive
	token := feedtest.Write(t, d, 1, nil)
	feedtest.Examines(t, d, "one zone")
	bucket.mu.Lock()
	bucket.sessions = nil // as an administrator may end them
	bucket.mu.Unlock()
	if err := feedtest.WriteError(t, d, 2, token); err == nil {
		t.Error("a session that was ended has written")
	}
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		_, client := newBucket(t)
		key := string(rune('a' + elections.Add(1)))
		return func() leaderelection.RaceDecider { return s3.NewDecider(client, bucketOfDirectory, key, nil) }
	}, &decidertest.Options{Rounds: 3})
}
