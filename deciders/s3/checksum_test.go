//go:build go1.25

package s3_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

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
		w.Header().Set("X-Amz-Request-Id", "PEHTQHS7XPM30ZXH")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code + `</Code><Message>` + message + `</Message></Error>`))
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

// Directory buckets do not know Content-MD5.
func TestNoMD5ForDirectoryBuckets(t *testing.T) {
	for bucket, want := range map[string]bool{"elections": true, "elections--euc1-az1--x-s3": false} {
		c := &noting{}
		_, _ = s3.NewDecider(c, bucket, "one", nil).WriteEntry(t.Context(), &first)
		if c.put == nil || (c.put.ContentMD5 != nil) != want {
			t.Errorf("%s: %+v", bucket, c.put)
		}
	}
}

// noting notes what is to be put, and does not put it.
type noting struct {
	s3.Client
	put *awss3.PutObjectInput
}

func (n *noting) PutObject(_ context.Context, in *awss3.PutObjectInput, _ ...func(*awss3.Options)) (*awss3.PutObjectOutput, error) {
	n.put = in
	return nil, errors.New("not now")
}
