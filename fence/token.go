package fence

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/c8e606e4/leaderelection"
)

// Token is a fencing token: the number of a leadership, and which election that is
// one of. Numbers of different elections cannot be compared.
type Token struct {
	// Election names the election, for the resource to tell it from others. It
	// is whatever writers and resource agree upon.
	Election string
	// Number is the leadership's. NoElections is no token.
	Number leaderelection.ElectionNumber
}

// Why a token is not admitted. Test with errors.Is.
var (
	// ErrStale: a greater token has been seen. The writer has been deposed.
	ErrStale = errors.New("fence: stale token")
	// ErrNoToken: there is none.
	ErrNoToken = errors.New("fence: no token")
	// ErrMalformed: what is there is none.
	ErrMalformed = errors.New("fence: malformed token")
	// ErrOtherElection: the token is another election's.
	ErrOtherElection = errors.New("fence: token of another election")
)

// StaleError is an ErrStale with facts.
type StaleError struct {
	Token Token
	// Greatest is the greatest number seen, or NoElections where the resource
	// does not say.
	Greatest leaderelection.ElectionNumber
}

// Error names the token and what it was found smaller than.
func (e *StaleError) Error() string {
	if e.Greatest == leaderelection.NoElections {
		return fmt.Sprintf("%v %v: a greater one has been seen", ErrStale, e.Token)
	}
	return fmt.Sprintf("%v %v: %d has been seen", ErrStale, e.Token, e.Greatest)
}

// Is says that a StaleError is an ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// String is the token's form in headers and metadata: the election, escaped as in
// a URL's path, a colon, and the number.
func (t Token) String() string {
	return url.PathEscape(t.Election) + ":" + strconv.FormatUint(uint64(t.Number), 10)
}

// maxToken is how long a token's text may be: it comes from outside.
const maxToken = 1024

// ParseToken reads what String wrote. Its errors are ErrNoToken where s is empty,
// else they wrap ErrMalformed.
func ParseToken(s string) (Token, error) {
	if s == "" {
		return Token{}, ErrNoToken
	}
	malformed := func(why string) (Token, error) {
		return Token{}, fmt.Errorf("%w %.80q: %s", ErrMalformed, s, why)
	}
	if len(s) > maxToken {
		return malformed("too long")
	}
	colon := strings.LastIndexByte(s, ':') // elections may have colons: URLs have
	if colon < 0 {
		return malformed("it is to be an election, a colon and a number")
	}
	escaped, digits := s[:colon], s[colon+1:]
	n, err := strconv.ParseUint(digits, 10, 63) // a greater one is damage, as in an election's record
	if err != nil || digits[0] == '0' {         // which refuses a sign, too
		return malformed("the number is to be a positive one below 2^63, in decimal")
	}
	election, err := url.PathUnescape(escaped)
	if err != nil || strings.ContainsAny(escaped, ",; \t") { // a comma would be a list of them
		return malformed("the election is not escaped as in a URL's path")
	}
	return Token{Election: election, Number: leaderelection.ElectionNumber(n)}, nil
}

// Check is for guards of one's own: it returns ErrNoToken where t is none, an
// error that wraps ErrOtherElection where it is not one of election, else nil.
func (t Token) Check(election string) error {
	switch {
	case t.Number == leaderelection.NoElections:
		return ErrNoToken
	case t.Election != election:
		return fmt.Errorf("%w: %v, and this is %q", ErrOtherElection, t, election)
	}
	return nil
}
