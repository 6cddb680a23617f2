package fence_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
)

// FuzzRequire sends any header: the resource is reached only with one good token of its election that is
// not smaller than one before it, and each refusal is known for what it is.
func FuzzRequire(f *testing.F) {
	f.Add("POST", "orders:7", "", false, uint64(6))
	f.Add("POST", "orders:5", "", false, uint64(6))
	f.Add("GET", "", "", true, uint64(6))
	f.Add("PUT", "orders:7", "orders:8", false, uint64(6))
	f.Add("PUT", "others:7", "", false, uint64(0))
	f.Add("PUT", " orders:7", "", false, uint64(0))
	f.Add("PUT", "orders:18446744073709551615", "", false, uint64(0))
	f.Add("PUT", "orders:+7", "", false, uint64(1))
	f.Add("GET", "", "", false, uint64(6)) // let in without a token
	f.Add("PUT", ":7", "", false, uint64(0))
	f.Add("PUT", "7", "", false, uint64(0))
	f.Fuzz(func(t *testing.T, method, first, second string, reads bool, seen uint64) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method = method
		for _, v := range []string{first, second} {
			if v != "" {
				r.Header.Add(fence.Header, v)
			}
		}
		values := r.Header.Values(fence.Header)
		safe := method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "TRACE"
		allowed := len(values) == 0 && safe && !reads
		var malformed bool
		if len(values) == 1 {
			token, err := fence.ParseToken(values[0])
			malformed = err != nil
			allowed = err == nil && token.Election == "orders" && uint64(token.Number) >= seen
		}
		reached := false
		guard := fence.NewGuard("orders", leaderelection.ElectionNumber(seen))
		w := httptest.NewRecorder()
		fence.Require(guard, &fence.RequireOptions{Reads: reads})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			reached = true
			if token, ok := fence.TokenFrom(r.Context()); ok != (len(values) == 1) || ok && uint64(token.Number) < seen {
				t.Errorf("let in with %v, after %d", token, seen)
			}
		})).ServeHTTP(w, r)
		refusal := fence.Refused(w.Result())
		if reached != allowed || reached == (refusal != nil) {
			t.Errorf("%s with %q after %d (reads: %t): reached is %t, want %t; refused with %v", method, values, seen, reads, reached, allowed, refusal)
		}
		if malformed && !errors.Is(refusal, fence.ErrMalformed) {
			t.Errorf("%q is malformed, and refused with %v", values, refusal)
		}
	})
}
