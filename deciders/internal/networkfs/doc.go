// Package networkfs recognizes file systems of other machines, whose locks cannot be trusted.
package networkfs
