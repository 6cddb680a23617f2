package fence

import (
	"errors"
	"fmt"
	"net/http"
)

// refusedHeader tells the writer that a refusal is the fence's, and which.
const refusedHeader = "Fencing-Refused"

// RequireOptions are the settings of [Require]. The zero value is right for most.
type RequireOptions struct {
	// Reads says that requests with a safe method (GET, HEAD, OPTIONS, TRACE) need a token as
	// well. If it is false they pass without a token, and a token that they have is judged.
	// The tokens of safe requests are not remembered.
	Reads bool
}

// refusals are the answers to a writer, by error.
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

// Require returns a middleware that lets only requests with an admitted token through. Put it in
// front of the handlers of a resource. It answers:
//
//   - 409 if the token is stale;
//   - 428 if it is missing;
//   - 400 if it is malformed, if there are several, or if it is another election's;
//   - 503 if c cannot decide.
//
// Handlers get the token from TokenFrom, for the condition of their own writes.
//
// A token does not prove who has sent it: put authentication in front of Require. See the
// package's documentation.
func Require(c Checker, opts *RequireOptions) func(http.Handler) http.Handler {
	var o RequireOptions
	if opts != nil {
		o = *opts
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			values := r.Header[Header]
			judge := c.Check
			if safe(r.Method) {
				if !o.Reads && len(values) == 0 {
					next.ServeHTTP(w, r)
					return
				}
				judge = c.Peek
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

// parseOne reads the token from the values of a header: there must be one value.
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
	// The client must not see err: it may have details of the store.
	http.Error(w, "fence: the token cannot be judged now", http.StatusServiceUnavailable)
}

// Refused returns why [Require] has refused the token of a request: ErrStale, ErrNoToken,
// ErrMalformed or ErrOtherElection. Call it with the response to the request. For any other
// response it returns nil, even for the application's own 409, and for nil.
func Refused(res *http.Response) error {
	for _, r := range refusals {
		if res != nil && res.StatusCode == r.status && res.Header.Get(refusedHeader) == r.word {
			return r.err
		}
	}
	return nil
}
