package fencegcs_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"cloud.google.com/go/storage"

	"github.com/c8e606e4/leaderelection/deciders/gcs/fencegcs"
	"github.com/c8e606e4/leaderelection/deciders/internal/objecttest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// server is how Cloud Storage talks.
func server() *objecttest.Server {
	refuse := func(w http.ResponseWriter, f objecttest.Failure) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.Status)
		fmt.Fprintf(w, `{"error":{"code":%d,"message":"by a test"}}`, f.Status)
	}
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		}
	}
	fails := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { refuse(w, objecttest.Failure{Status: status}) }
	}
	return &objecttest.Server{
		New: func(t *testing.T, rt http.RoundTripper, imitation bool) objecttest.Object {
			if imitation {
				t.Setenv("STORAGE_EMULATOR_HOST", "gcs.example")
			}
			return one{object(t, "http://gcs.example", "k", rt, false)}
		},
		Describe: func(w http.ResponseWriter, r *http.Request, _ []byte, metadata map[string]string) {
			m, _ := json.Marshal(metadata)
			says(`{"name":"k","generation":"7","metageneration":"1","metadata":`+string(m)+`}`)(w, r)
		},
		Refuse:   refuse,
		Missing:  objecttest.Failure{Status: 404},
		Failures: map[objecttest.Failure]bool{{Status: 412}: true, {Status: 409}: true, {Status: 403}: false, {Status: 429}: false, {Status: 500}: false, {Status: 503}: false},
		Unknown: map[string]http.HandlerFunc{
			"no permission":  fails(403),
			"a failure":      fails(500),
			"another object": says(`{"name":"other","generation":"7","metageneration":"1"}`),
			"no generation":  says(`{"name":"k","metageneration":"1"}`),
			"something else": says(`{}`),
		},
		Condition: func(r *http.Request) string {
			q := r.URL.Query()
			return q.Get("ifGenerationMatch") + "/" + q.Get("ifMetagenerationMatch")
		},
		Seen: "7/1", Never: "1/1099511627776",
	}
}

func TestScripts(t *testing.T) { objecttest.RunScripts(t, server()) }

// The whole content fits into the buffer that the client can repeat it from, up to 16 MiB.
func TestTheBufferFits(t *testing.T) {
	const unit = 256 << 10
	for _, size := range []int{0, 1, unit - 1, unit, unit + 1, 3 * unit} {
		chunk := 0
		s := &objecttest.Script{Server: server()}
		err := fencegcs.Put(t.Context(), object(t, "http://gcs.example", "k", s, false), fencetest.Orders(3), strings.NewReader(strings.Repeat("x", size)), func(w *storage.Writer) { chunk = w.ChunkSize })
		if err != nil || len(s.Writes) != 1 || chunk <= size || chunk > size+unit || chunk%unit != 0 {
			t.Errorf("%d bytes: a buffer of %d, written %d times, %v", size, chunk, len(s.Writes), err)
		}
	}
}
