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
	"os/exec"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/stores"
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

// servers starts the stores, and returns where they serve. One whose program is not
// on this machine is left out.
func servers(t testing.TB, term time.Duration) map[string]string {
	addrs := map[string]string{
		kubernetesStore: kubernetesServer(t),
		etcdStore:       stores.Etcd(t, "-fsync").Endpoint,
		consulStore:     stores.Consul(t, fmt.Sprintf(`{"session_ttl_min":%q}`, min(term, 10*time.Second))).Address,
	}
	if _, err := exec.LookPath(redisProgram); err == nil {
		addrs[redisStore] = stores.Redis(t).Addr
	}
	return addrs
}

const redisProgram = "redis-server"

func run(t *testing.T, p plan) {
	addrs := servers(t, p.term)
	if addrs[redisStore] == "" {
		fmt.Println(redisProgram, "is not in PATH: the rows on Redis are left out")
	}
	fmt.Printf("%s, %s/%s, %d cores; lease %v, %d elections each; %s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), p.term, p.elections, time.Now().UTC().Format(time.DateOnly))
	results := measure(t.Context(), t, p, addrs)
	table(results)
	legend(results)
	for i, r := range results {
		if r != nil && r.err != nil {
			t.Errorf("%v: %v", contestants[i], r.err)
		}
	}
}
