//go:build !unix

package cli

import "io"

// journalled: there is no systemd.
func journalled(io.Writer) bool { return false }
