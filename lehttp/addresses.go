package lehttp

import (
	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// Port chooses the leader's HostPorts that have the given port, for ProxyOptions.Addresses and
// RedirectOptions.Addresses. Use it if the record has other addresses than that of HTTP, too.
func Port(port string) func(leader leaderelection.RaceEntry) []string { return route.Port(port) }

// Named chooses the addresses with the given name in the leader's ConnectionParams, for
// ProxyOptions.Addresses and RedirectOptions.Addresses. The ConnectionParams must be JSON, in
// which each name has addresses of host and port:
//
//	{"addresses": {"admin": ["10.0.0.1:9000"], "app": ["10.0.0.1:8080", "[fd00::1]:8080"]}}
//
// Other members of that JSON are ignored. A leader without that name cannot be reached.
func Named(name string) func(leader leaderelection.RaceEntry) []string { return route.Named(name) }
