// Package disk brings what was written on to the disk, and says what a system's errors of
// files mean.
package disk
