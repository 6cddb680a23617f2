// Command bench elects leaders with this library and with what people use instead, on the
// same stores, and prints what users choose by, as the table of README.md: how long a crash and a
// stop leave the work without a leader, and how many requests the store gets.
//
//	go run ./internal/test/apart/bench
//
// It takes two minutes, most of them waiting, and needs redis-server in PATH for the rows on
// Redis. It is a module of its own, so that nobody who imports the library links the others.
package main

import (
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func main() {
	candidateMain()
	p := plan{}
	flag.IntVar(&p.elections, "elections", 20, "elections at once in each process: the samples of each figure")
	flag.DurationVar(&p.term, "term", 15*time.Second, "the lease, in whole seconds")
	flag.DurationVar(&p.window, "window", 30*time.Second, "how long to count requests")
	flag.Func("only", "the contestants whose \"NAME on STORE\" matches this `regexp`, such as 'etcd$'", func(text string) (err error) {
		p.only, err = regexp.Compile(text)
		return err
	})
	// The helper that starts the stores works for tests: this is one. It parses the
	// flags, prints PASS or what went wrong, and exits.
	every := func(string, string) (bool, error) { return true, nil }
	testing.Main(every, []testing.InternalTest{{Name: "bench", F: func(t *testing.T) { run(t, p) }}}, nil, nil)
}

// servers starts the stores, and returns where they serve. Redis is left out if its program is not
// on this machine.
func servers(t testing.TB) map[string]string {
	addrs := map[string]string{kubernetesStore: kubernetesServer(t), etcdStore: stores.Etcd(t, "-fsync").Endpoint}
	if _, err := exec.LookPath("redis-server"); err == nil {
		addrs[redisStore] = stores.Redis(t).Addr
	}
	return addrs
}

func run(t *testing.T, p plan) {
	addrs := servers(t)
	if addrs[redisStore] == "" {
		fmt.Println("redis-server is not on this machine: the rows on redis are left out")
	}
	fmt.Printf("%s, %s/%s, %d cores; lease %v, %d elections each; %s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), p.term, p.elections, time.Now().UTC().Format(time.DateOnly))
	results := measure(t, p, addrs)
	row("", "store", "crash: no leader, s (median / max)", "stop: no leader, ms (median / max)", "requests a minute (leader / standby)")
	fmt.Println(strings.Repeat("|---", 5) + "|")
	for i, r := range results {
		c := contestants[i]
		switch {
		case r == nil:
		case r.err != nil:
			t.Errorf("%v: %v", c, r.err)
		default:
			row(strings.Replace(c.name, "leaderelection", "**leaderelection**", 1), c.store, two(r.crash, "%.1f", time.Second), two(r.handed, "%.0f", time.Millisecond), fmt.Sprintf("%.1f / %.1f", r.leader, r.standby))
		}
	}
	fmt.Println("\nSettings, T being the lease:")
	for i, c := range contestants {
		if results[i] != nil {
			fmt.Printf("  %v (%s %s): %s\n", c, c.library, version(c.library), c.settings)
		}
	}
}

// row prints a line of a table, in Markdown.
func row(cells ...string) { fmt.Println("| " + strings.Join(cells, " | ") + " |") }

// two is the median and the maximum.
func two(d []time.Duration, format string, unit time.Duration) string {
	return fmt.Sprintf(format+" / "+format, float64(quantile(d, 0.5))/float64(unit), float64(quantile(d, 1))/float64(unit))
}
