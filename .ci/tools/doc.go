// Package tools pins, in its go.mod, the programs that make check and make vuln build. It has no
// code. Make lint builds its linter from outside of it.
package tools
