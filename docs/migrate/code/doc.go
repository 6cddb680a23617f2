// Package code holds the programs of the migration guides: what stands in a guide is
// compiled and run here. Its test compares the two.
package code
