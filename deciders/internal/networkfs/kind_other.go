//go:build !linux && !darwin

package networkfs

// Kind cannot tell, on this system.
func Kind(string) (kind string, err error) { return "", nil }
