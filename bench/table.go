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

// legend prints the settings and versions of the contestants that were measured.
func legend(p plan, stores map[string]string) {
	fmt.Println("Settings, T being the lease:")
	for _, c := range contestants {
		if stores[c.store] != "" && p.takes(c) {
			fmt.Printf("  %v (%s %s): %s\n", c, c.library, version(c.library), c.settings)
		}
	}
}

// storeTable prints what became of leaders when their store failed over within itself.
func storeTable(results []*failover) {
	head("", "store", "the store has no leader, s", "leaderships lost", "nobody leads, s (median / max)", "to win again, s (max)", "overlap, ms (signal / predicate)")
	for i, r := range results {
		if r == nil || r.err != nil {
			continue
		}
		c := contestants[i]
		row(c.titled(), c.store, fmt.Sprintf("%.1f", r.outage.Seconds()), fmt.Sprintf("%d of %d", r.lost, r.elections), two(r.vacant, 0.5, "%.1f", time.Second), r.waited(), worst(c, r.over))
	}
	fmt.Println()
}

// idleTable prints what idle processes use, a value for each size.
func idleTable(results []*idle, sizes idleSizes) {
	var of []string
	for _, n := range sizes {
		of = append(of, fmt.Sprint(n))
	}
	title := func(what string) string { return what + " (" + strings.Join(of, " / ") + ")" }
	head("", "store", title("leader: CPU, ms a minute"), title("switches a minute"), title("memory, MiB"),
		title("standby: CPU, ms a minute"), title("switches a minute"), title("memory, MiB"))
	each := func(of []idled, format string, value func(idled) float64) string {
		var cells []string
		for _, d := range of {
			text := "-"
			if v := value(d); v != 0 {
				text = fmt.Sprintf(format, v)
			}
			cells = append(cells, text)
		}
		return strings.Join(cells, " / ")
	}
	for i, r := range results {
		if r == nil || r.err != nil {
			continue
		}
		cells := []string{contestants[i].titled(), contestants[i].store}
		for _, of := range [][]idled{r.leader, r.standby} {
			cells = append(cells,
				each(of, "%.0f", func(d idled) float64 { return float64(d.cpu) / float64(time.Millisecond) }),
				each(of, "%.0f", func(d idled) float64 { return d.switches }),
				each(of, "%.0f", func(d idled) float64 { return float64(d.memory) / (1 << 20) }))
		}
		row(cells...)
	}
	fmt.Println()
}

// deathsTable prints how soon another led when the leader's process had died.
func deathsTable(results []*deaths) {
	head("", "store", "SIGKILL, standby on the machine, ms (median / max)", "panic, the same", "started again on the machine, no standby", "standby elsewhere, undertaker on the machine", "standby elsewhere")
	for i, r := range results {
		if r == nil || r.err != nil {
			continue
		}
		cells := []string{contestants[i].titled(), contestants[i].store}
		for _, took := range [][]time.Duration{r.beside, r.panicked, r.again, r.undertaken, r.elsewhere} {
			cells = append(cells, two(took, 0.5, "%.0f", time.Millisecond))
		}
		row(cells...)
	}
	fmt.Println()
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
