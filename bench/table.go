package main

import (
	"fmt"
	"strings"
	"time"
)

// titled is a contestant's name in a table: this library's is bold.
func (c contestant) titled() string {
	if rest, ours := strings.CutPrefix(c.name, "leaderelection"); ours && c.library == module {
		return "**leaderelection**" + rest
	}
	return c.name
}

// row prints a line of a table, in Markdown.
func row(cells ...string) { fmt.Println("| " + strings.Join(cells, " | ") + " |") }

// head prints a table's first lines.
func head(titles ...string) {
	row(titles...)
	fmt.Println("|" + strings.Repeat("---|", len(titles)))
}

// table prints the results, as README.md has them.
func table(results []*result) {
	head("", "store", "crash: no leader, s (median / max)", "stop: no leader, ms (median / max)", "requests a minute (leader / standby)",
		"paused: overlap, ms (signal / predicate)", "cut off: overlap, ms (signal / predicate)", "cut off: gives up, s (min / max)", "token")
	for i, r := range results {
		if r == nil || r.err != nil {
			continue
		}
		c := contestants[i]
		row(c.titled(), c.store, two(r.crash, 0.5, "%.1f", time.Second), two(r.handed, 0.5, "%.0f", time.Millisecond),
			requests(c, r), worst(c, r.paused), worst(c, r.frozen), gaveUp(r), c.token)
	}
	fmt.Println()
}

// legend prints each contestant's settings and version.
func legend(results []*result) {
	fmt.Println("Settings, T being the lease:")
	for i, r := range results {
		if c := contestants[i]; r != nil {
			fmt.Printf("  %s on %s (%s %s): %s\n", c.name, c.store, c.library, version(c.library), c.settings)
		}
	}
}

// gaveUp is when the signal ended of a leader that was cut off, or for how long it was looked at in vain.
func gaveUp(r *result) string {
	switch r.stuck {
	case 0:
		return two(r.clung, 0, "%.1f", time.Second)
	case len(r.clung):
		return fmt.Sprintf("never in %.0f", quantile(r.clung, 0).Seconds())
	}
	return fmt.Sprintf("%.1f / never in %.0f", quantile(r.clung, 0).Seconds(), quantile(r.clung, 1).Seconds())
}

// two is a quantile and the maximum.
func two(d []time.Duration, q float64, format string, unit time.Duration) string {
	if len(d) == 0 {
		return "-"
	}
	return fmt.Sprintf(format+" / "+format, float64(quantile(d, q))/float64(unit), float64(quantile(d, 1))/float64(unit))
}

func requests(c contestant, r *result) string {
	if c.freezeOnly {
		return "-"
	}
	return fmt.Sprintf("%.1f / %.1f", r.leader, r.standby)
}

// worst is the longest overlap, by the signal and by the predicate.
func worst(c contestant, o overlaps) string {
	if len(o.told) == 0 {
		return "-"
	}
	ms := func(d []time.Duration) string {
		return fmt.Sprintf("%.0f", float64(quantile(d, 1))/float64(time.Millisecond))
	}
	if c.noPredicate {
		return ms(o.told) + " / none"
	}
	return ms(o.told) + " / " + ms(o.asked)
}
