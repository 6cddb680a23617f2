//go:build !no_kubernetes

package leaderslice

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
)

// answers is an API server that gives one answer to each read.
type answers struct {
	code    int
	text    []byte
	patches []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Method == http.MethodPatch {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		a.patches = append(a.patches, string(text))
	} else {
		w.WriteHeader(a.code)
		_, _ = w.Write(a.text)
	}
	return w.Result(), nil
}

// Whatever the API server answers, a leader writes at most once, on the version that it has read, under its own
// token, and only one of its own addresses, of the slice's family. It writes nothing over what a later
// leadership has written, and when it leaves nothing but what it has written itself. If it neither writes nor
// fails, there is nothing to write.
func FuzzAnswers(f *testing.F) {
	const v4, v6 = "10.0.0.1", "fd00::1"
	for _, text := range []string{
		`{"metadata":{"resourceVersion":"17"},"addressType":"IPv4","endpoints":null}`,
		`{"metadata":{"resourceVersion":"17","annotations":{"leaderelection/token":"6"}},"addressType":"IPv6","endpoints":[{"addresses":["10.0.0.9"]}]}`,
		`{"metadata":{"resourceVersion":"17","annotations":{"leaderelection/token":"7"}},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}}]}`,
		`{"metadata":{"resourceVersion":"17","annotations":{"leaderelection/token":"8"}},"addressType":"IPv4","endpoints":[]}`,
		`{"metadata":{"annotations":{"leaderelection/token":"99999999999999999999"}},"addressType":"FQDN","endpoints":[{}]}`,
		`{"metadata":{"resourceVersion":"17"},"addressType":"FQDN","endpoints":[{}]}`, // an address of IPv6 is not IPv4
		`{"metadata":{"resourceVersion":"99999999999999999999"},"addressType":"IPv4"}`,
		`{"metadata":{},"addressType":"IPv4"}`, // a patch without a version is unconditional
		`{"metadata":{"annotations":{"leaderelection/token":"-1"}}}`, `{"metadata":null,"endpoints":[null]}`,
		`{"kind":"Status","message":"that is so"}`, `null`, `[]`, `"`, ``, `{"endpoints":[{"addresses":{}}]}`,
	} {
		f.Add([]byte(text), false, false)
		f.Add([]byte(text), true, false)
		f.Add([]byte(text), false, true)
	}
	f.Fuzz(func(t *testing.T, text []byte, leaves, fails bool) {
		a := &answers{http.StatusOK, text, nil}
		if fails {
			a.code = http.StatusConflict
		}
		hostPorts := []string{v4 + ":8080", "[" + v6 + "]:8080"}
		if leaves {
			hostPorts = nil
		}
		err := (&object{&http.Client{Transport: a}, "https://kubernetes/slice"}).Lead(t.Context(), 7, hostPorts)
		var is, said struct {
			Metadata    metadata   `json:"metadata"`
			AddressType string     `json:"addressType"`
			Endpoints   []endpoint `json:"endpoints"`
		}
		if json.Unmarshal(text, &is) != nil || fails {
			if err == nil || len(a.patches) > 0 {
				t.Fatalf("%v, and it wrote %q", err, a.patches)
			}
			return
		}
		token, _ := strconv.ParseUint(is.Metadata.Annotations[numberKey], 10, 64) // too large is the largest
		if len(a.patches) == 0 {
			if err == nil && !leaves && !(token == 7 && len(is.Endpoints) == 1 && len(is.Endpoints[0].Addresses) == 1 && (is.Endpoints[0].Addresses[0] == v4 || is.Endpoints[0].Addresses[0] == v6)) {
				t.Fatalf("nothing is written, and the slice is %+v", is)
			}
			return
		}
		if err := json.Unmarshal([]byte(a.patches[0]), &said); err != nil || len(a.patches) > 1 {
			t.Fatalf("it wrote %q: %v", a.patches, err)
		}
		if version, err := strconv.ParseUint(is.Metadata.ResourceVersion, 10, 64); err != nil || version == 0 || said.Metadata.ResourceVersion != is.Metadata.ResourceVersion || said.Metadata.Annotations[numberKey] != "7" {
			t.Errorf("on version %q it wrote %s", is.Metadata.ResourceVersion, a.patches[0])
		}
		if token > 7 || leaves && token != 7 {
			t.Errorf("over what was written with token %d it wrote %s", token, a.patches[0])
		}
		if is.AddressType != "IPv4" && is.AddressType != "IPv6" {
			t.Errorf("to a slice of type %q it wrote %s", is.AddressType, a.patches[0])
		}
		var to []string
		for _, e := range said.Endpoints {
			to = append(to, e.Addresses...)
		}
		switch {
		case leaves:
			if len(to) > 0 {
				t.Errorf("it leaves, and the slice leads to %q", to)
			}
		case len(to) != 1 || to[0] != v4 && to[0] != v6 || netip.MustParseAddr(to[0]).Is4() != (is.AddressType == "IPv4"):
			t.Errorf("a slice of type %q leads to %q", is.AddressType, to)
		}
	})
}
