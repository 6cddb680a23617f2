package azblob_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
)

// Only the answers of a real account say that the record is on hold, expires, or is a copy. They are
// as Get Blob Properties is documented.
func TestDurability(t *testing.T) {
	for headers, says := range map[string]string{
		"": "",
		"x-ms-lease-state: leased\nx-ms-lease-duration: infinite":            "holds a native lease on the record for ever",
		"x-ms-lease-state: breaking":                                         "holds a native lease on the record for a while",
		"x-ms-lease-state: broken":                                           "",
		"x-ms-legal-hold: true":                                              "legal hold",
		"x-ms-legal-hold: false":                                             "",
		"x-ms-immutability-policy-until-date: Fri, 27 Nov 2026 00:00:00 GMT": "until 2026-11-27",
		"x-ms-expiry-time: Fri, 27 Nov 2026 00:00:00 GMT":                    "deleted at 2026-11-27",
		"x-ms-or-policy-id: 4711":                                            "it is a copy",
		"x-ms-or-4711_one: complete":                                         "is replicated to another",
		"x-ms-version-id: 2026-11-24T10:00:00.0000000Z":                      "",
	} {
		service := newFake()
		d := azblob.NewDecider(inProcess(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodHead {
				service.ServeHTTP(w, r)
				return
			}
			if len(service.blobs) == 0 {
				refuse(w, http.StatusNotFound, "BlobNotFound")
				return
			}
			for _, line := range strings.Split(headers, "\n") {
				if name, value, is := strings.Cut(line, ": "); is {
					w.Header().Set(name, value)
				}
			}
			w.WriteHeader(http.StatusOK)
		}), nil), containerName, "one", nil)
		if _, err := d.Durability(t.Context()); err == nil || !strings.Contains(err.Error(), "no record yet") {
			t.Errorf("%s: before anybody has led: %v", headers, err)
		}
		if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, Incarnation: "i"}); err != nil {
			t.Fatal(err)
		}
		warnings, err := d.Durability(t.Context())
		if err != nil || (says == "") != (len(warnings) == 0) || says != "" && !strings.Contains(warnings[0].String(), says) {
			t.Errorf("%s: %v, %v, want %q", headers, warnings, err, says)
		}
	}
}
