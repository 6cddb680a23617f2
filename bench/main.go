// Command bench elects leaders with this library and with what people use instead,
// on the same stores, and prints what users choose by, as the tables of README.md: how long a
// crash and a stop leave the work without a leader, what is asked of the store, for how long
// an old leader still believes in itself when the next one leads, what becomes of leaders
// when their store fails over within itself, what idle processes use, and how soon another
// leads after the death of a process if its machine tells of it (package lifeline).
//
//	go -C bench run .
//
// It takes about a quarter of an hour, most of them waiting, and the first time some more, to build
// Consul's server. It needs redis-server in PATH for the rows on Redis. It is a module of its
// own, so that nobody who imports the library links the others. See README.md beside this
// file for the method.
package main

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// The tables.
const (
	tableLeaders = "leaders"
	tableStore   = "store"
	tableIdle    = "idle"
	tableDeaths  = "deaths"
)

func main() {
	candidateMain()
	p, tables, sizes := plan{}, []string{tableLeaders, tableStore, tableIdle, tableDeaths}, idleSizes{1, 100, 1000}
	flag.IntVar(&p.elections, "elections", 20, "elections at once in each process: the samples of each figure")
	flag.DurationVar(&p.term, "term", 15*time.Second, "the lease, in whole seconds")
	flag.DurationVar(&p.window, "window", 30*time.Second, "how long to count requests, and what idle processes use")
	flag.DurationVar(&p.rtt, "rtt", 10*time.Millisecond, "what the stores take to answer, at least, when deaths are measured")
	flag.Func("only", "the contestants whose \"NAME on STORE\" matches this `regexp`, such as 'etcd$'", func(text string) (err error) {
		p.only, err = regexp.Compile(text)
		return err
	})
	flag.Func("scenes", "the tables to measure, with commas (default \""+strings.Join(tables, ",")+"\")", func(text string) error {
		all := tables
		tables = strings.Split(text, ",")
		for _, name := range tables {
			if !slices.Contains(all, name) {
				return fmt.Errorf("%q is none of %q", name, all)
			}
		}
		return nil
	})
	flag.Func("idle", "how many elections idle processes take part in, with commas (default \"1,100,1000\")", func(text string) error {
		sizes = nil
		for _, field := range strings.Split(text, ",") {
			n, err := strconv.Atoi(field)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no number of elections", field)
			}
			sizes = append(sizes, n)
		}
		return nil
	})
	// The helper that starts the stores works for tests: this is one. It parses the
	// flags, prints PASS or what went wrong, and exits.
	every := func(string, string) (bool, error) { return true, nil }
	testing.Main(every, []testing.InternalTest{{Name: "bench", F: func(t *testing.T) { run(t, p, tables, sizes) }}}, nil, nil)
}

// servers starts the stores, and returns where they serve. One whose program is not
// on this machine is left out.
func servers(t testing.TB, term time.Duration) map[string]string {
	addrs := map[string]string{
		kubernetesStore: kubernetesServer(t),
		etcdStore:       stores.Etcd(t, "-fsync").Endpoint,
		consulStore:     stores.Consul(t, consulConfig(term)).Address,
	}
	if missing(redisStore) == "" {
		addrs[redisStore] = stores.Redis(t).Addr
	}
	if missing(postgresStore) == "" {
		addrs[postgresStore] = stores.Postgres(t, "max_connections=1000").Addr
	}
	return addrs
}

// consulConfig has Consul take sessions of a lease that is shorter than it likes.
func consulConfig(term time.Duration) string {
	return fmt.Sprintf(`{"session_ttl_min":%q}`, min(term, 10*time.Second))
}

// missing names the program of a store's server that is not on this machine; "" if nothing is missing.
func missing(store string) string {
	name := map[string]string{redisStore: "redis-server", postgresStore: "initdb"}[store]
	if _, err := exec.LookPath(name); name == "" || err == nil {
		return ""
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 { // Debian's
		return ""
	}
	return name
}

func run(t *testing.T, p plan, tables []string, sizes idleSizes) {
	addrs := servers(t, p.term)
	for _, store := range []string{redisStore, postgresStore} {
		if program := missing(store); program != "" {
			fmt.Println(program, "is not on this machine: the rows on", store, "are left out")
		}
	}
	fmt.Printf("%s, %s/%s, %d cores; lease %v, %d elections each; %s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), p.term, p.elections, time.Now().UTC().Format(time.DateOnly))
	failed := func(i int, err error) {
		if err != nil {
			t.Errorf("%v: %v", contestants[i], err)
		}
	}
	if slices.Contains(tables, tableLeaders) {
		results := measure(t.Context(), t, p, addrs)
		table(results)
		for i, r := range results {
			if r != nil {
				failed(i, r.err)
			}
		}
	}
	if slices.Contains(tables, tableStore) {
		// A sentinel that lives on would take the store of a later table, on a port that is used again, for its
		// old master, and make it a replica.
		var results []*failover
		t.Run(tableStore, func(t *testing.T) { results = measureFailover(t, p) })
		storeTable(results)
		for i, r := range results {
			if r != nil {
				failed(i, r.err)
			}
		}
	}
	if slices.Contains(tables, tableIdle) {
		results := measureIdle(t.Context(), t, p, sizes, addrs)
		idleTable(results, sizes)
		for i, r := range results {
			if r != nil {
				failed(i, r.err)
			}
		}
	}
	if slices.Contains(tables, tableDeaths) {
		results, err := measureDeaths(t.Context(), t, p, addrs)
		if err != nil {
			t.Error(err)
		}
		deathsTable(results)
		for i, r := range results {
			if r != nil {
				failed(i, r.err)
			}
		}
	}
	legend(p, addrs)
}
