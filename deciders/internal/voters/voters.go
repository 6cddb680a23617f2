// Package voters says what the number of servers means that vote on a store's writes.
package voters

import (
	"fmt"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

// Examine warns if there is one voter, or an even number. One says that there is one, and several that
// there are %d.
func Examine(n int, one, several string) []durability.Warning {
	switch {
	case n < 2:
		return []durability.Warning{{
			Detail: one + ": its disk is the only one that has what was confirmed, and nobody can lead while it is away",
			Advice: "run three",
		}}
	case n%2 == 0:
		return []durability.Warning{{
			Detail: fmt.Sprintf(several+", which survive the loss of %d, no more than %d would", n, n/2-1, n-1),
			Advice: fmt.Sprintf("run %d or %d", n-1, n+1),
		}}
	}
	return nil
}
