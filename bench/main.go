// Command bench elects leaders with this library and with what people use instead,
// on the same stores, and prints what users choose by, in one table: how long a
// crash and a stop leave the work without a leader, what is asked of the store, and
// for how long an old leader still believes in itself when the next one leads.
//
//	go -C bench run .
//
// It takes about two minutes, all of them waiting. It needs redis-server in PATH
// for the rows on Redis. It is a module of its own, so that nobody who imports the
// library links the others. See README.md beside this file for the method.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

func main() {
	candidateMain()
	p := plan{}
	flag.IntVar(&p.elections, "elections", 20, "elections at once in each process: the samples of each figure")
	flag.DurationVar(&p.term, "term", 15*time.Second, "the lease, in whole seconds")
	flag.DurationVar(&p.window, "window", 30*time.Second, "how long to count requests")
	// The helper that starts the stores works for tests: this is one. It parses the
	// flags, prints PASS or what went wrong, and exits.
	every := func(string, string) (bool, error) { return true, nil }
	testing.Main(every, []testing.InternalTest{{Name: "bench", F: func(t *testing.T) { run(t, p) }}}, nil, nil)
}

// servers starts the stores, and returns where they serve. One whose program is not
// on this machine is left out.
func servers(t testing.TB) map[string]string {
	addrs := map[string]string{
		kubernetesStore: kubernetesServer(t),
		etcdStore:       stores.Etcd(t, "-fsync").Endpoint,
	}
	if _, err := exec.LookPath(redisProgram); err == nil {
		addrs[redisStore] = stores.Redis(t).Addr
	}
	return addrs
}

const redisProgram = "redis-server"

func run(t *testing.T, p plan) {
	addrs := servers(t)
	if addrs[redisStore] == "" {
		fmt.Println(redisProgram, "is not in PATH: the rows on Redis are left out")
	}
	fmt.Printf("%s, %s/%s, %d cores; lease %v, %d elections each; %s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), p.term, p.elections, time.Now().UTC().Format(time.DateOnly))
	results := measure(t.Context(), t, p, addrs)
	table(results)
	for i, r := range results {
		if r != nil && r.err != nil {
			t.Errorf("%s on %s: %v", contestants[i].name, contestants[i].store, r.err)
		}
	}
}

// table prints the results.
func table(results []*result) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tstore\tcrash\tstop\trequests\tpaused\tcut off\tcut off\ttoken")
	fmt.Fprintln(w, "\t\tno leader, s\tno leader, ms\ta minute\toverlap, ms\toverlap, ms\tgives up, s\t")
	fmt.Fprintln(w, "\t\tmedian / max\tmedian / max\tleader / standby\tsignal / predicate\tsignal / predicate\tmin / max\t")
	for i, r := range results {
		if r == nil || r.err != nil {
			continue
		}
		c := contestants[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.name, c.store,
			two(r.crash, 0.5, "%.1f", time.Second), two(r.handed, 0.5, "%.0f", time.Millisecond),
			requests(c, r), worst(c, r.paused), worst(c, r.frozen), two(r.clung, 0, "%.1f", time.Second), c.token)
	}
	_ = w.Flush()
	fmt.Println("\nSettings, T being the lease:")
	for i, r := range results {
		if c := contestants[i]; r != nil {
			fmt.Printf("  %s on %s (%s %s): %s\n", c.name, c.store, c.library, version(c.library), c.settings)
		}
	}
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
