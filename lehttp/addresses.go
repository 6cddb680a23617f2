package lehttp

import (
	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// Port is for ProxyOptions.Addresses and RedirectOptions.Addresses: the leader's HostPorts
// that have that port. So one record can have what serves HTTP and what serves the rest.
func Port(port string) func(leader leaderelection.RaceEntry) []string { return route.Port(port) }

// Named is for ProxyOptions.Addresses and RedirectOptions.Addresses: the addresses that the
// leader's ConnectionParams have by that name. They are JSON then, in which each name has
// addresses of host and port:
//
//	{"addresses": {"admin": ["10.0.0.1:9000"], "app": ["10.0.0.1:8080", "[fd00::1]:8080"]}}
//
// Other members are left alone. A leader without that name cannot be reached.
func Named(name string) func(leader leaderelection.RaceEntry) []string { return route.Named(name) }
