package fence

import (
	"errors"
	"fmt"
	"net/http"
)

// refusedHeader tells the writer that a refusal is the fence's, and which.
const refusedHeader = "Fencing-Refused"

// Options are for [Require]. The zero value is right for most.
type Options struct {
	// Reads: requests with a safe method (GET, HEAD, OPTIONS, TRACE) need a
	// token as well. Otherwise they pass without one; where they have one, it
	// is judged. Either way it is not remembered, if the Checker is a [Peeker];
	// with one that is not, tokens of safe requests are ignored, unless Reads.
	Reads bool
}

// refusals are what a writer is told, by error.
var refusals = []struct {
	err    error
	status int
	word   string
}{
	{ErrStale, http.StatusConflict, "stale"},
	{ErrNoToken, http.StatusPreconditionRequired, "missing"},
	{ErrMalformed, http.StatusBadRequest, "malformed"},
	{ErrOtherElection, http.StatusBadRequest, "election"},
}

// Require returns a middleware that lets only requests with an admitted token
// through: it answers 409 where the token is stale, 428 where it is missing, 400
// where it is malformed (also where there are several) or another election's, and
// 503 where c cannot decide. Handlers find the token by TokenOf, for the condition
// of what they write elsewhere.
//
// A token is no proof of who sends it: put authentication in front of Require. See the
// package's documentation.
func Require(c Checker, options *Options) func(http.Handler) http.Handler {
	var o Options
	if options != nil {
		o = *options
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			values := r.Header[Header]
			judge := c.Check
			if safe(r.Method) {
				peeker, ok := c.(Peeker)
				if !o.Reads && (len(values) == 0 || !ok) {
					next.ServeHTTP(w, r)
					return
				}
				if ok {
					judge = peeker.Peek
				}
			}
			t, err := parseOne(values)
			if err == nil {
				err = judge(r.Context(), t)
			}
			if err != nil {
				refuse(w, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(WithToken(r.Context(), t)))
		})
	}
}

func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// parseOne reads the one token among the values of a header.
func parseOne(values []string) (Token, error) {
	switch len(values) {
	case 0:
		return Token{}, ErrNoToken
	case 1:
		return ParseToken(values[0])
	}
	return Token{}, fmt.Errorf("%w: there are %d", ErrMalformed, len(values))
}

func refuse(w http.ResponseWriter, err error) {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			w.Header().Set(refusedHeader, r.word)
			http.Error(w, err.Error(), r.status)
			return
		}
	}
	// Not for the client to read: it may tell of the store.
	http.Error(w, "fence: the token cannot be judged now", http.StatusServiceUnavailable)
}

// Refused reports whether an answer is the refusal of a token by [Require]: then it
// returns ErrStale, ErrNoToken, ErrMalformed or ErrOtherElection, else nil. A 409
// of the application's own is none.
func Refused(res *http.Response) error {
	word := res.Header.Get(refusedHeader)
	for _, r := range refusals {
		if word == r.word && res.StatusCode == r.status {
			return r.err
		}
	}
	return nil
}
