// Package within gives up, when their ctx ends, calls that cannot be
// interrupted: file operations, and those of clients that look at a ctx between
// their steps only.
package within

import (
	"context"
	"io"
)

// Calls bounds how many calls may be under way at once, those included that
// were given up and have not returned. Make it with as many places.
type Calls chan struct{}

// Do runs f in a goroutine of its own and returns what f does, or ctx's error
// if that ends first, even while waiting for a place among calls. What f does
// after that is up to f; where it then returns an io.Closer without an error,
// that is closed.
func Do[T any](ctx context.Context, calls Calls, f func() (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	select {
	case calls <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome)
	go func() {
		value, err := f()
		<-calls
		select {
		case done <- outcome{value, err}:
		case <-ctx.Done():
			if c, ok := any(value).(io.Closer); ok && err == nil {
				_ = c.Close()
			}
		}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
