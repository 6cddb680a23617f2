// Package durations knows a duration that was written without a unit.
package durations

import (
	"fmt"
	"time"
)

// Fault is what is wrong with the setting name, or nil: it is negative, or positive and less than
// least. Nobody means so little: a bare number counts nanoseconds.
func Fault(name string, d, least time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("%s is %v, must not be negative", name, d)
	case d > 0 && d < least:
		return fmt.Errorf("%s is %v: a bare number counts nanoseconds, say %d*time.Second", name, d, d)
	}
	return nil
}

// Least is the shortest that a setting may be meant to be: a millisecond.
const Least = time.Millisecond
