//go:build !unix

package proc

import "os"

// PassOn is never called on this system.
func PassOn(*os.File) error { return ErrUnsupported }
