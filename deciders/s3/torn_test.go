package s3_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// Servers may put together the answer to a read from two versions. A content that is
// older than the ETag that came with it would be overwritten unseen.
func TestReadOfTwoVersions(t *testing.T) {
	for name, etag := range map[string]func(string) string{
		"MD5s":   func(s string) string { return s },
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
					write := func(d *s3.Decider, e leaderelection.RaceEntry) error {
						_, err := d.WriteEntry(t.Context(), &e)
						return err
					}
					first := leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermExpiry: time.Now().Add(time.Minute)}
					if err := write(leader, first); err != nil {
						t.Fatal(err)
					}
					e, err := leader.ReadCurrent(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					gets = 0
					between = func() {
						e.LeaderID, e.ElectionNumber = "b", 2
						if err := write(leader, *e); err != nil {
							t.Error(err)
						}
					}
					seen, err := other.ReadCurrent(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					between = nil
					claim := *seen
					claim.LeaderID, claim.ElectionNumber = "c", seen.ElectionNumber+1
					if err := write(other, claim); seen.LeaderID != "b" && err == nil && e.LeaderID == "b" {
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
	if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermExpiry: time.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	feedtest.Passing(t, feedtest.ReadError(t, d), "does not fit its ETag")
}
