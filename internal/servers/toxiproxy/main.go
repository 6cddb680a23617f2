// Command toxiproxy is toxiproxy with a small handle on it, for tests: TCP
// proxies each of which can be cut, stopped or slowed. It is a module of its own, so that nobody who imports the
// library meets its dependencies.
//
//	toxiproxy 127.0.0.1:10241 127.0.0.1:6379 127.0.0.1:10242 127.0.0.1:6379
//
// Its arguments are pairs: where a proxy listens, and the server that it leads to.
// It prints the address of its control server as its first line. There
//
//	GET  /0                  where proxy 0 listens
//	POST /0/cut              close its connections, refuse new ones
//	POST /0/hang             keep connections open and accept new ones, but let no byte through
//	POST /0/mute             let requests through, and no answers
//	POST /0/sever?n=100      close each connection when so many more bytes have gone to the server
//	POST /0/slow?n=50        delay what comes from the server, by milliseconds
//	POST /0/heal             undo all of these
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal("toxiproxy: ", err)
	}
}

// run proxies, for each pair of addresses, from the first to the second.
func run(addrs []string) error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	mux := http.NewServeMux()
	for i := range len(addrs) / 2 {
		listen, upstream := addrs[2*i], addrs[2*i+1]
		p := &handle{proxy: toxiproxy.NewProxy(server, strconv.Itoa(i), listen, upstream)}
		if err := p.proxy.Start(); err != nil {
			return fmt.Errorf("proxy to %s: %w", upstream, err)
		}
		mux.HandleFunc(fmt.Sprintf("GET /%d", i), func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, p.proxy.Listen) })
		mux.HandleFunc(fmt.Sprintf("POST /%d/{act}", i), func(w http.ResponseWriter, r *http.Request) {
			if err := p.do(r.PathValue("act"), r.FormValue("n")); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, mux)
}

// handle is one proxy. Its calls come one at a time.
type handle struct {
	mu     sync.Mutex
	proxy  *toxiproxy.Proxy
	toxics []string
	cut    bool
}

func (h *handle) do(act, n string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch act {
	case "cut":
		h.proxy.Stop()
		h.cut = true
		return nil
	case "hang":
		// Without a time of its own it drops what comes until it is removed.
		return errors.Join(h.add("timeout", "upstream", `"timeout":0`), h.add("timeout", "downstream", `"timeout":0`))
	case "mute":
		return h.add("timeout", "downstream", `"timeout":0`)
	case "sever":
		return h.add("limit_data", "upstream", `"bytes":`+n)
	case "slow":
		return h.add("latency", "downstream", `"latency":`+n)
	case "heal":
		return h.heal()
	}
	return fmt.Errorf("%q is unknown", act)
}

func (h *handle) add(kind, stream, attributes string) error {
	t, err := h.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":{%s}}`, kind, stream, attributes)))
	if err != nil {
		return err
	}
	h.toxics = append(h.toxics, t.Name)
	return nil
}

func (h *handle) heal() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var failed error
	for _, name := range h.toxics {
		failed = errors.Join(failed, h.proxy.Toxics.RemoveToxic(ctx, name))
	}
	h.toxics = nil
	if h.cut {
		h.cut = false
		failed = errors.Join(failed, h.proxy.Start()) // on the port that it had
	}
	return failed
}
