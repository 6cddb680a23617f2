package gcs_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/gcs"
)

// Only the settings of a real bucket say that a rule deletes the record, that it cannot be replaced, or
// where it is kept. They are as the JSON API documents the resource Bucket.
func TestDurability(t *testing.T) {
	rule := func(condition string) string {
		return `"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": ` + condition + `}]}`
	}
	for settings, says := range map[string]string{
		`"locationType": "region"`:                                                                "",
		`"locationType": "multi-region", "location": "EU"`:                                        "multi-region EU",
		`"locationType": "dual-region", "location": "NAM4", "rpo": "ASYNC_TURBO"`:                 "dual-region NAM4",
		`"locationType": "zone", "location": "us-east1-b"`:                                        "one zone",
		`"retentionPolicy": {"retentionPeriod": "3600", "effectiveTime": "2026-01-01T00:00:00Z"}`: "retention policy keeps the record from being replaced for 1h0m0s",
		`"defaultEventBasedHold": true`:                                                           "event-based hold",
		`"softDeletePolicy": {"retentionDurationSeconds": "604800"}`:                              "",
		`"versioning": {"enabled": true}`:                                                         "",
		rule(`{"age": 30}`):                                                                       "nobody leads for 30 days",
		rule(`{"age": 30, "matchesPrefix": ["logs/", "elections/"]}`):                             "nobody leads for 30 days",
		rule(`{"age": 30, "matchesPrefix": ["logs/"]}`):                                           "",
		rule(`{"age": 30, "matchesSuffix": [".tmp"]}`):                                            "",
		rule(`{"age": 30, "isLive": false}`):                                                      "",
		rule(`{"age": 30, "isLive": true}`):                                                       "nobody leads for 30 days",
		rule(`{"createdBefore": "2027-01-01"}`):                                                   "nobody leads after 2027-01-01",
		rule(`{"numNewerVersions": 3}`):                                                           "",
		rule(`{"daysSinceCustomTime": 3}`):                                                        "",
		`"lifecycle": {"rule": [{"action": {"type": "SetStorageClass", "storageClass": "ARCHIVE"}, "condition": {"age": 1}}]}`: "",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/storage/v1/b/"+bucket {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind": "storage#bucket", "name": %q, "storageClass": "STANDARD", %s}`, bucket, settings)
		}))
		warnings, err := gcs.NewDecider(client(t, s.URL), bucket, "elections/one", nil).Durability(t.Context())
		s.Close()
		if err != nil || (says == "") != (len(warnings) == 0) || says != "" && !strings.Contains(warnings[0].String(), says) {
			t.Errorf("%s: %v, %v, want %q", settings, warnings, err, says)
		}
	}
}

// Without the permission to read the settings, the error names it.
func TestDurabilityWithoutPermission(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, jsonError("forbidden"))
	}))
	defer s.Close()
	warnings, err := gcs.NewDecider(client(t, s.URL), bucket, "one", nil).Durability(t.Context())
	if len(warnings) > 0 || err == nil || !strings.Contains(err.Error(), "storage.buckets.get") {
		t.Errorf("%v, %v", warnings, err)
	}
}
