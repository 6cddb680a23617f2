//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disk is what a host's programs wait for when they have something written to the disk
// (fsync(2) and the like): nothing, a while, or until the disk answers again. The kernel
// asks this process before each such call (seccomp_unotify(2)), whatever language the
// program is in, and whatever the disk below really is.
type disk struct {
	mu    sync.Mutex
	delay time.Duration
	stuck chan struct{} // closed when the disk answers again; nil: it does
	syncs int           // how many calls have been made
}

// syncs are the calls that wait for the disk.
var syncs = []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_MSYNC, unix.SYS_SYNCFS, unix.SYS_SYNC}

// slow has each call take so much longer.
func (d *disk) slow(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = delay
}

// stick has no call end before mend.
func (d *disk) stick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stuck == nil {
		d.stuck = make(chan struct{})
	}
}

func (d *disk) mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = 0
	if d.stuck != nil {
		close(d.stuck)
		d.stuck = nil
	}
}

func (d *disk) wait() {
	d.mu.Lock()
	delay, stuck := d.delay, d.stuck
	d.syncs++
	d.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	time.Sleep(delay)
}

// made is how many calls there were.
func (d *disk) made() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// serve lets the calls of a server go on, each in its time, until the server has ended. It
// closes the file.
func (d *disk) serve(listener int) {
	var calls sync.WaitGroup
	defer func() {
		calls.Wait() // it is mended some time
		_ = unix.Close(listener)
	}()
	for {
		ready := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err == unix.EINTR {
			continue
		} else if err != nil || ready[0].Revents&unix.POLLIN == 0 {
			return
		}
		var call struct {
			id uint64
			_  [72]byte // who, and which
		}
		if errno := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&call)); errno != 0 {
			continue // whoever called has just been killed
		}
		calls.Go(func() {
			d.wait()
			answer := struct {
				id    uint64
				_     int64
				_     int32
				flags uint32
			}{id: call.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			_ = ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)) // or it has been killed meanwhile
		})
	}
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) syscall.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	return errno
}

// onDisk starts a command whose disk is h's: this program asks the kernel to be asked, and
// becomes the command then.
func (h *host) onDisk(c *exec.Cmd) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	here, there := pair[0], os.NewFile(uintptr(pair[1]), "disk")
	defer unix.Close(here)
	c.ExtraFiles = []*os.File{there}
	c.Args = append([]string{self, "disk", c.Path}, c.Args...)
	c.Path = self
	err = h.start(c)
	there.Close()
	if err != nil {
		return err
	}
	listener, err := receive(here)
	if err != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		return fmt.Errorf("%s: asking to be asked before each fsync (seccomp): %w", h.name, err)
	}
	go h.disk.serve(listener)
	return nil
}

// receive receives an open file.
func receive(socket int) (int, error) {
	space := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), space, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(space[:n])
	if err != nil {
		return 0, err
	}
	if len(messages) != 1 {
		return 0, errors.New("the kernel does not let it; its log says why")
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	return files[0], nil
}

// runOnDisk is the process that becomes the command args[1:], which is at args[0].
func runOnDisk(args []string) error {
	const socket = 3
	runtime.LockOSThread()                                                             // the filter is this thread's, and exec leaves this thread
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the call's number
	for i, nr := range syncs {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jt: uint8(len(syncs) - i)})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w; it takes root and Linux 5.19", errno)
	}
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return err
	}
	_ = unix.Close(socket)
	return syscall.Exec(args[0], args[1:], os.Environ())
}

// diskFaults befall the disks of a store's servers.
var diskFaults = []fault{
	{"disk slow", func(w *world) func() {
		n := w.node()
		n.disk.slow(w.within(w.term/100, w.term/3))
		return n.disk.mend
	}},
	{"all disks slow", func(w *world) func() {
		delay := w.within(w.term/100, w.term/6)
		return w.disks(func(d *disk) { d.slow(delay) })
	}},
	{"disk stuck", func(w *world) func() {
		n := w.node()
		n.disk.stick()
		return n.disk.mend
	}},
	{"all disks stuck", func(w *world) func() { return w.disks((*disk).stick) }},
	{"disk stuck, server killed", func(w *world) func() {
		n := w.node()
		n.disk.stick()
		time.Sleep(w.within(w.term/30, w.term/3))
		n.kill()
		return func() {
			n.disk.mend()
			w.must(w.store.start(n))
		}
	}},
}

// disks does something to the disks of all servers, and returns what mends them.
func (w *world) disks(do func(*disk)) func() {
	for _, n := range w.store.nodes {
		do(&n.disk)
	}
	return func() {
		for _, n := range w.store.nodes {
			n.disk.mend()
		}
	}
}
