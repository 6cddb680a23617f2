// Package networkfs tells file systems of other machines from local ones: their locks
// cannot be trusted.
package networkfs
