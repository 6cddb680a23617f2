package runner

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/c8e606e4/leaderelection"
)

// Told are the variables that a command finds, apart from what this program's own environment has.
var Told = []string{"LEADERELECT_TOKEN", "LEADERELECT_LEADER_ID", "LEADERELECT_STORE", "LEADERELECT_EXPIRY_FILE", "LEADERELECT_LEASE_ID", "LEADERELECT_SHARD", "LEADERELECT_SHARDS"}

// Environment is a command's: this program's, and what a leader must know. What
// another leaderelect, whose command this is, had to say is not in it; nor is the
// store if that is empty, nor what is withheld.
func Environment(token leaderelection.ElectionNumber, leader, store string, withheld []string, more ...string) []string {
	own := append([]string{fmt.Sprintf("LEADERELECT_TOKEN=%d", uint64(token)), "LEADERELECT_LEADER_ID=" + leader}, more...)
	if store != "" {
		own = append(own, "LEADERELECT_STORE="+store)
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(Told, name) || slices.Contains(withheld, name)
	})
	return append(env, own...)
}
