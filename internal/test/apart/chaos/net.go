//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// network is a switch between hosts. Each host is a network namespace whose only way out
// is a tun device that the switch reads and writes: so every packet passes through this
// process, which delivers it, late or not at all. It needs root and /dev/net/tun, and no
// module of the kernel for shaping or filtering; all of it is gone with this process.
type network struct {
	mu    sync.Mutex
	hosts map[[4]byte]*host
	links map[link]rule
}

// link is one direction between two hosts.
type link struct{ from, to *host }

// rule is what becomes of a link's packets.
type rule struct {
	cut   bool
	loss  float64 // the share of packets that is lost
	delay time.Duration
}

// host is a network namespace.
type host struct {
	name, addr string
	ip         [4]byte
	tun        *os.File
	ns         string // what /proc calls it
	do         chan func()
	disk       disk
}

func newNetwork() *network {
	return &network{hosts: map[[4]byte]*host{}, links: map[link]rule{}}
}

// add makes a host.
func (n *network) add(name string) (*host, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &host{name: name, ip: [4]byte{10, 77, 0, byte(len(n.hosts) + 1)}, do: make(chan func())}
	h.addr = fmt.Sprintf("10.77.0.%d", h.ip[3])
	made := make(chan error)
	go h.live(made)
	if err := <-made; err != nil {
		return nil, fmt.Errorf("host %s (it takes root, iproute2 and /dev/net/tun): %w", name, err)
	}
	n.hosts[h.ip] = h
	go n.forward(h)
	return h, nil
}

// live is the host's thread: what it starts is within the namespace, and is killed when
// the thread ends, which is with the process.
func (h *host) live(made chan<- error) {
	runtime.LockOSThread()
	made <- h.make()
	for f := range h.do {
		f()
	}
}

func (h *host) make() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	ifr, err := unix.NewIfreq("chaos0")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return err
	}
	h.tun = os.NewFile(uintptr(fd), "tun of "+h.name)
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"address", "add", h.addr + "/24", "dev", "chaos0"}, {"link", "set", "chaos0", "up"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	h.ns, err = os.Readlink(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	return err
}

// forward delivers what a host sends.
func (n *network) forward(from *host) {
	buf := make([]byte, 1<<16)
	for {
		size, err := from.tun.Read(buf)
		if err != nil {
			return
		}
		if size < 20 || buf[0]>>4 != 4 {
			continue
		}
		n.mu.Lock()
		to := n.hosts[[4]byte(buf[16:20])]
		r := n.links[link{from, to}]
		n.mu.Unlock()
		switch {
		case to == nil || r.cut || r.loss > 0 && rand.Float64() < r.loss:
		case r.delay > 0:
			packet := append([]byte(nil), buf[:size]...)
			time.AfterFunc(r.delay, func() { _, _ = to.tun.Write(packet) })
		default:
			_, _ = to.tun.Write(buf[:size])
		}
	}
}

// set changes the links from each of from to each of to; back as well if both is true.
func (n *network) set(from, to []*host, both bool, r rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range from {
		for _, b := range to {
			if a == b {
				continue
			}
			n.links[link{a, b}] = r
			if both {
				n.links[link{b, a}] = r
			}
		}
	}
}

// heal mends all links.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.links)
}

// start starts a command on the host. It dies with this process.
func (h *host) start(c *exec.Cmd) error {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error)
	h.do <- func() { result <- c.Start() }
	return <-result
}

// run runs a command on the host to its end.
func (h *host) run(c *exec.Cmd) error {
	out, err := os.CreateTemp("", "chaos")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	c.Stdout, c.Stderr = out, out
	if err = h.start(c); err == nil {
		err = c.Wait()
	}
	if err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %s: %w: %s", h.name, filepath.Base(c.Path), err, text)
	}
	return nil
}

// signal sends sig to every process of the host, whoever started it.
func (h *host) signal(sig syscall.Signal) {
	for _, pid := range h.processes() {
		_ = syscall.Kill(pid, sig)
	}
}

// kill kills every process of the host, and returns when none is left.
func (h *host) kill() {
	for len(h.processes()) > 0 {
		h.signal(syscall.SIGKILL)
		time.Sleep(5 * time.Millisecond)
	}
}

// processes are the processes of the host but this one, whose threads live in all of them.
func (h *host) processes() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, file := range all {
		ns, err := os.Readlink(file)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file))))
		if err == nil && ns == h.ns && pid != os.Getpid() && !zombie(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	for i := len(stat) - 1; i >= 0; i-- {
		if stat[i] == ')' {
			return i+2 < len(stat) && stat[i+2] == 'Z'
		}
	}
	return false
}
