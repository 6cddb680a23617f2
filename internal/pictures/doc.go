// Package pictures draws the time lines of docs/pictures from elections that its test holds
// with the real code in virtual time:
//
//	go test ./internal/pictures -update
//
// Without -update the test fails if a picture is not what the code does any more.
package pictures
