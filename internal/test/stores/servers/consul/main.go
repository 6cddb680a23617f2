// Command consul is a real Consul server, for tests: the agent of Consul 1.14, the last
// version with a free licence that can be had from the Go module proxy. It is a module of its own, so
// that nobody who imports the library meets its two hundred dependencies.
//
//	consul -data DIR [-http 127.0.0.1:8500]             one server
//	consul -data DIR -http ... -name b -server 127.0.0.1:8301 -serf 127.0.0.1:8302 \
//	       -expect 3 -join 127.0.0.1:8402,127.0.0.1:8502
//	... [-config '{"acl":{"enabled":true}}']            more of Consul's configuration
//
// It prints the address that it is to serve HTTP on as its first line; when the servers have a
// leader, is to be asked there. It keeps its data in DIR, so that it can be killed and started again.
//
// To build it cold takes two cores several minutes: build it before the tests that need
// it (make consul).
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	mcli "github.com/mitchellh/cli"

	"github.com/hashicorp/consul/command/agent"
	"github.com/hashicorp/consul/command/cli"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("consul: ", err)
	}
}

func run() error {
	var (
		data    = flag.String("data", "", "the directory to keep data in")
		serve   = flag.String("http", "127.0.0.1:8500", "where to serve HTTP")
		name    = flag.String("name", "a", "the server's name")
		server  = flag.String("server", "", "where other servers reach this one")
		serf    = flag.String("serf", "", "where it gossips")
		expect  = flag.Int("expect", 1, "how many servers there are to be")
		join    = flag.String("join", "", "where the others gossip, with commas")
		further = flag.String("config", "{}", "more configuration, as JSON")
	)
	flag.Parse()
	if *data == "" {
		return errors.New("-data is missing: the directory to keep data in")
	}
	ports := map[string]int{"https": -1, "dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1}
	for what, address := range map[string]string{"http": *serve, "server": *server, "serf_lan": *serf} {
		port, err := portOf(address)
		if err != nil {
			return err
		}
		ports[what] = port
	}
	config := map[string]any{
		"server": true, "bootstrap_expect": *expect, "node_name": *name, "data_dir": filepath.Join(*data, "data"),
		"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "ports": ports, "retry_interval": "1s",
		"performance": map[string]any{"raft_multiplier": 1}, "connect": map[string]any{"enabled": false},
		"limits":               map[string]any{"http_max_conns_per_client": 10_000},
		"disable_update_check": true, "disable_keyring_file": true, "skip_leave_on_interrupt": true, "log_level": "warn",
	}
	if *join != "" {
		config["retry_join"] = strings.Split(*join, ",")
	}
	file := filepath.Join(*data, "agent.json")
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return err
	}
	more := filepath.Join(*data, "more.json")
	if err := os.WriteFile(more, []byte(*further), 0o600); err != nil {
		return err
	}
	ui := &cli.BasicUI{BasicUi: mcli.BasicUi{Writer: os.Stderr, ErrorWriter: os.Stderr}}
	fmt.Println(*serve)
	return fmt.Errorf("the agent ended with %d", agent.New(ui).Run([]string{"-config-file", file, "-config-file", more}))
}

// portOf is the port of an address, or a free one.
func portOf(address string) (int, error) {
	if address == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		defer l.Close()
		address = l.Addr().String()
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}
