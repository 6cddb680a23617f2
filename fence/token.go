package fence

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/c8e606e4/leaderelection"
)

// Token is a fencing token: the number of a leadership, and the name of its election. Numbers of
// different elections cannot be compared.
type Token struct {
	// Election names the election, so that the resource can tell it from others. Writers and
	// resource must use the same name. A Token without a name is not a token.
	Election string
	// Number is the leadership's number. A Token with NoElections, or with more than
	// MaxElectionNumber, is not a token.
	Number leaderelection.ElectionNumber
}

// Reasons why a token is not admitted, or a write not made. Test with errors.Is.
var (
	// ErrStale means that a greater token has been seen: the writer has been deposed.
	ErrStale = errors.New("fence: stale token")
	// ErrNotWritten means that the resource has not made the write, and that a greater token
	// is not the reason. It does not show that the writer has been deposed.
	ErrNotWritten = errors.New("fence: not written, and not because of a newer leadership")
	// ErrNoToken means that there is no token.
	ErrNoToken = errors.New("fence: no token")
	// ErrMalformed means that the text or the Token is not a token.
	ErrMalformed = errors.New("fence: malformed token")
	// ErrOtherElection means that the token is another election's.
	ErrOtherElection = errors.New("fence: token of another election")
)

// StaleError is an ErrStale with facts.
type StaleError struct {
	Token Token
	// Greatest is the greatest number seen, or NoElections if the resource does not tell.
	Greatest leaderelection.ElectionNumber
}

// Error names the token, and the greater number.
func (e *StaleError) Error() string {
	if e.Greatest == leaderelection.NoElections {
		return fmt.Sprintf("%v %v: a greater one has been seen", ErrStale, e.Token) + setBack + "TOKEN (the greatest that the resource has seen)"
	}
	return fmt.Sprintf("%v %v: %d has been seen", ErrStale, e.Token, e.Greatest) + setBack + fmt.Sprint(uint64(e.Greatest))
}

// setBack is the remedy, unless a newer leader has written.
const setBack = ". If this process leads, the election's record was set back: run leaderelect reset --after "

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// String returns the token's form in headers and metadata: the election, escaped as in a URL's
// path, a colon, and the number.
func (t Token) String() string {
	return url.PathEscape(t.Election) + ":" + strconv.FormatUint(uint64(t.Number), 10)
}

// maxToken is the length of the longest token that is read: its text comes from outside.
const maxToken = 1024

// ParseToken reads what String has written. It returns ErrNoToken if s is empty. All its other
// errors wrap ErrMalformed.
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
		return malformed("it must be an election, a colon and a number")
	}
	escaped, digits := s[:colon], s[colon+1:]
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || digits[0] == '0' { // ParseUint refuses a sign, too
		return malformed("the number must be positive, below 2^63, and in decimal")
	}
	election, err := url.PathUnescape(escaped)
	if err != nil || strings.ContainsAny(escaped, ",; \t") { // a comma would be a list of them
		return malformed("the election is not escaped as in a URL's path")
	}
	t := Token{Election: election, Number: leaderelection.ElectionNumber(n)}
	if err := t.Check(election); err != nil {
		return Token{}, err
	}
	return t, nil
}

// Check reports whether t is a token of election. All fences call it: do so in your own guard. It
// returns:
//
//   - ErrNoToken if the number is NoElections;
//   - an error that wraps ErrMalformed if the number is greater than
//     leaderelection.MaxElectionNumber, or t has no election's name;
//   - an error that wraps ErrOtherElection if t is another election's;
//   - nil otherwise.
func (t Token) Check(election string) error {
	switch {
	case t.Number == leaderelection.NoElections:
		return ErrNoToken
	case t.Number > leaderelection.MaxElectionNumber: // damage; and no leadership could come after
		return fmt.Errorf("%w %v: its number is not below 2^63", ErrMalformed, t)
	case t.Election == "": // it would pass for a token of any election that was not named
		return fmt.Errorf("%w %v: it names no election: set Gate.Election", ErrMalformed, t)
	case t.Election != election:
		return fmt.Errorf("%w: %v, and this is %q", ErrOtherElection, t, election)
	}
	return nil
}
