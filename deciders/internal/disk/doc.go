// Package disk makes file changes durable, and explains a system's errors of files.
package disk
