package rules

import (
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	le "github.com/c8e606e4/leaderelection"
)

// The addresses of bridges that other programs make within a machine are not this machine's: each machine has
// the same. A machine that has no other keeps them.
func TestSelfHostPortsWithoutBridges(t *testing.T) {
	type answer struct {
		skip      string
		all, left []string
		err       error
	}
	answers := make(chan answer)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its network
		var a answer
		defer func() { answers <- a }()
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			a.skip = "a network of its own: " + err.Error()
			return
		}
		add := func(address, name string) {
			for _, args := range []string{"link add " + name + " type bridge", "addr add " + address + " dev " + name, "link set " + name + " up"} {
				if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil && a.skip == "" {
					a.skip = "ip " + args + ": " + err.Error() + ": " + string(out)
				}
			}
		}
		for i, name := range []string{"docker0", "br-0123456789ab", "virbr0", "cni0", "vetha", "podman1"} {
			add("172.17."+string(rune('0'+i))+".1/24", name)
		}
		if a.left, a.err = le.SelfHostPorts("80"); a.err != nil || a.skip != "" {
			return
		}
		add("10.0.0.5/24", "eth0")
		add("10.0.1.5/24", "br-lan")
		add("10.0.2.5/24", "bond0")
		a.all, a.err = le.SelfHostPorts("80")
	}()
	a := <-answers
	if a.skip != "" {
		t.Skip(a.skip)
	}
	v6 := func(address string) bool { return strings.HasPrefix(address, "[") }
	if got := slices.DeleteFunc(a.all, v6); a.err != nil || !slices.Equal(got, []string{"10.0.0.5:80", "10.0.1.5:80", "10.0.2.5:80"}) {
		t.Errorf("%q, %v", got, a.err)
	}
	if got := slices.DeleteFunc(a.left, v6); len(got) != 6 {
		t.Errorf("bridges alone: %q", got)
	}
}
