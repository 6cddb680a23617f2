// Package migrate holds the programs of the migration guides: what stands in a guide of docs/migrate is
// compiled and run here. Its test compares the two.
package migrate
