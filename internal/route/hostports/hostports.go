// Package hostports finds the addresses by which others reach this machine.
package hostports

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Own is leaderelection.SelfHostPorts.
func Own(port string) ([]string, error) {
	if port == "" {
		return nil, errors.New("leaderelection: SelfHostPorts: the port is empty")
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("leaderelection: SelfHostPorts: listing network interfaces: %w", err)
	}
	var v4, v6 [2][]string // of networks, and of bridges
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("leaderelection: SelfHostPorts: addresses of %s: %w", i.Name, err)
		}
		kind := 0
		if localBridge(i.Name) {
			kind = 1
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok || !n.IP.IsGlobalUnicast() {
				continue
			}
			to := &v6[kind]
			if n.IP.To4() != nil {
				to = &v4[kind]
			}
			*to = append(*to, net.JoinHostPort(n.IP.String(), port))
		}
	}
	for kind := range v4 {
		if all := append(v4[kind], v6[kind]...); len(all) > 0 {
			return all, nil
		}
	}
	return nil, errors.New("leaderelection: SelfHostPorts: this machine has no global unicast address: name one in HostPort")
}

// localBridges are how the names of networks begin that Docker, Podman, CNI, libvirt and LXD make within a machine:
// every machine has the same addresses there.
var localBridges = []string{"docker", "podman", "cni", "veth", "virbr", "lxcbr", "lxdbr"}

// localBridge reports whether an interface of that name leads only into its machine.
func localBridge(name string) bool {
	network, dockers := strings.CutPrefix(name, "br-")
	if dockers && len(network) == 12 && strings.Trim(network, "0123456789abcdef") == "" { // not an administrator's, as br-lan
		return true
	}
	return slices.ContainsFunc(localBridges, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
