//go:build !linux && !darwin

package disk

// Sync does nothing on this system.
func Sync(string) error { return nil }
