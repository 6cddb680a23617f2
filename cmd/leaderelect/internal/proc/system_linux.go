package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

const steadyClock = clockBoottime

// self is this program, even if its file was replaced since it started.
func self() (string, error) { return "/proc/self/exe", nil }

// rename gives this process a name of its own, in place of "exe".
func rename() { _ = os.WriteFile("/proc/self/comm", []byte(guardName), 0) }

// adopt makes this process the parent of what its descendants leave behind.
func adopt() error {
	if err := prctl(prSetChildSubreaper, 1); err != nil {
		return fmt.Errorf("becoming a child subreaper: %w", err)
	}
	return nil
}

// confined reports whether what this process starts must be kept from becoming
// another user, by a setuid program: this process could not signal it then.
func confined() bool {
	effective, err := capabilities()
	if err != nil {
		return os.Geteuid() != 0
	}
	return effective&(1<<capKill) == 0
}

// confine keeps what this thread starts from it.
func confine() error {
	if err := prctl(prSetNoNewPrivs, 1); err != nil {
		return fmt.Errorf("keeping the command from becoming another user, by PR_SET_NO_NEW_PRIVS: %w", err)
	}
	return nil
}

// ownGroup is how the command is started: first of a process group, and killed
// when the thread that started it dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// checkSystem reports what a guard would miss on this system.
func checkSystem() error {
	_, _, unlisted := list(1)
	alarm, err := NewAlarm()
	if err == nil {
		alarm.Close()
	}
	timers, none := newRouser()
	if none == nil {
		timers.close()
	}
	return errors.Join(unlisted, err, none)
}

// The system calls that package syscall does not wrap. golang.org/x/sys/unix does, but
// a guard is to begin before other packages than those of the standard library do (see
// init in start_unix.go).

// Of linux/time.h, linux/timerfd.h, linux/prctl.h, linux/capability.h and linux/fcntl.h.
const (
	clockRealtime  = 0
	clockMonotonic = 1
	clockBoottime  = 7

	timerAbstime = 1 // also of timerfd
	tfdCloexec   = syscall.O_CLOEXEC
	tfdNonblock  = syscall.O_NONBLOCK

	prSetChildSubreaper = 36
	prSetNoNewPrivs     = 38
	capVersion3         = 0x20080522
	capKill             = 5
	fSetsig             = 10
)

type itimerspec struct{ interval, value syscall.Timespec }

func errnoOf(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func clockGettime(clock int) (nanoseconds int64, err error) {
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano(), errnoOf(errno)
}

func timerfdCreate(clock, flags int) (fd int, err error) {
	r, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, uintptr(clock), uintptr(flags), 0)
	return int(r), errnoOf(errno)
}

// timerfdSettime has it expire once, at nanoseconds.
func timerfdSettime(fd, flags int, at int64) error {
	next := itimerspec{value: syscall.NsecToTimespec(at)}
	_, _, errno := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(fd), uintptr(flags), uintptr(unsafe.Pointer(&next)), 0, 0, 0)
	return errnoOf(errno)
}

func prctl(option, value int) error {
	_, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, uintptr(option), uintptr(value), 0, 0, 0, 0)
	return errnoOf(errno)
}

// capabilities are the effective ones of this process, those from 0 to 31.
func capabilities() (uint32, error) {
	header := struct {
		version uint32
		pid     int32
	}{version: capVersion3}
	var data [2]struct{ effective, permitted, inheritable uint32 }
	_, _, errno := syscall.Syscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	return data[0].effective, errnoOf(errno)
}

func fcntl(fd, command, value int) error {
	_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), uintptr(command), uintptr(value))
	return errnoOf(errno)
}

// Alarm rings at a Deadline. The kernel keeps the time by both of its clocks: no
// process has to wake up and look, and it rings at once after a suspension, or a
// step of the wall clock, that has passed the Deadline over.
type Alarm struct {
	// C has a value after the alarm has rung. It may ring without cause: look
	// at the time.
	C <-chan struct{}

	steady, wall *os.File
}

// NewAlarm returns an alarm that is not set.
func NewAlarm() (*Alarm, error) {
	rung := make(chan struct{}, 1)
	a := &Alarm{C: rung}
	for _, t := range []struct {
		clock int
		file  **os.File
	}{{steadyClock, &a.steady}, {clockRealtime, &a.wall}} {
		fd, err := timerfdCreate(t.clock, tfdCloexec|tfdNonblock)
		if err != nil {
			a.Close()
			return nil, fmt.Errorf("an alarm on the clock %d (timerfd_create): %w", t.clock, err)
		}
		*t.file = os.NewFile(uintptr(fd), "timerfd")
	}
	for _, f := range []*os.File{a.steady, a.wall} {
		go func() {
			for count := make([]byte, 8); ; {
				if _, err := f.Read(count); err != nil {
					return // closed
				}
				select {
				case rung <- struct{}{}:
				default:
				}
			}
		}()
	}
	return a, nil
}

// Set has the alarm ring at d, and not before.
func (a *Alarm) Set(d Deadline) {
	set(a.steady, d.Steady)
	set(a.wall, d.Wall)
}

func set(f *os.File, at int64) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	// 0 would disarm it.
	_ = raw.Control(func(fd uintptr) { _ = timerfdSettime(int(fd), timerAbstime, max(at, 1)) }) // fails only when closed
}

// Close ends the alarm.
func (a *Alarm) Close() {
	for _, f := range []*os.File{a.steady, a.wall} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// rouser has the kernel see to it that this process does not sleep through what it has to
// do when it is stopped (SIGSTOP): a timer's signal reaches a stopped process, too.
// SIGCONT has it go on. It may be stopped again, or held by a debugger, for which
// SIGCONT is nothing; so later SIGKILL ends it.
type rouser struct {
	steady, wall posixTimer // SIGCONT
	kill         posixTimer // SIGKILL
}

type posixTimer int32

// newRouser returns one that is not set. It lasts as long as the process.
func newRouser() (*rouser, error) {
	r := &rouser{-1, -1, -1}
	for _, t := range []struct {
		timer  *posixTimer
		clock  int
		signal syscall.Signal
	}{
		{&r.steady, steadyClock, syscall.SIGCONT},
		{&r.wall, clockRealtime, syscall.SIGCONT},
		// This one stands still while the machine is suspended: when it wakes, this
		// process is to do its work, and not to die.
		{&r.kill, clockMonotonic, syscall.SIGKILL},
	} {
		if err := t.timer.create(t.clock, t.signal); err != nil {
			r.close()
			return nil, fmt.Errorf("a timer that wakes a stopped process (timer_create on the clock %d): %w; does a sandbox forbid it?", t.clock, err)
		}
	}
	return r, nil
}

// set has this process go on at wake, if it is stopped, and die when kill has passed
// from now. No kill is never.
func (r *rouser) set(wake Deadline, kill time.Duration) {
	r.steady.set(timerAbstime, wake.Steady)
	r.wall.set(timerAbstime, wake.Wall)
	r.kill.set(0, int64(kill))
}

// close forgets the timers.
func (r *rouser) close() {
	for _, t := range []posixTimer{r.steady, r.wall, r.kill} {
		_, _, _ = syscall.Syscall(syscall.SYS_TIMER_DELETE, uintptr(t), 0, 0) // -1 is none
	}
}

// sigevent is struct sigevent of sigevent(3type).
type sigevent struct {
	value  uintptr
	signal int32
	notify int32
	_      [13]int32 // 64 bytes are read, at least
}

// create makes a timer that sends a signal to this process (SIGEV_SIGNAL).
func (t *posixTimer) create(clock int, s syscall.Signal) error {
	e := sigevent{signal: int32(s)}
	_, _, errno := syscall.Syscall(syscall.SYS_TIMER_CREATE, uintptr(clock), uintptr(unsafe.Pointer(&e)), uintptr(unsafe.Pointer(t)))
	return errnoOf(errno)
}

// set sets it; 0 disarms it.
func (t posixTimer) set(flags int, at int64) {
	next := itimerspec{value: syscall.NsecToTimespec(at)}
	// It fails only for a timer that there is not.
	_, _, _ = syscall.Syscall6(syscall.SYS_TIMER_SETTIME, uintptr(t), uintptr(flags), uintptr(unsafe.Pointer(&next)), 0, 0, 0)
}

// lifeline is a pipe by which the kernel wakes this process with SIGCONT, if it is
// stopped, as soon as its guard is dead. Only the guard has the end that can be written
// to; life is here and there. A guard that has done its work calls letGo first: a
// candidate that was stopped on purpose stays so.
func lifeline() (life, end *os.File, err error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("a pipe that tells of the guard's death: %w", err)
	}
	life, end = os.NewFile(uintptr(fds[0]), "lifeline"), os.NewFile(uintptr(fds[1]), "lifeline")
	for _, c := range [][2]int{{syscall.F_SETOWN, os.Getpid()}, {fSetsig, int(syscall.SIGCONT)}, {syscall.F_SETFL, syscall.O_ASYNC}} {
		if err := fcntl(fds[0], c[0], c[1]); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("asking to be told of the guard's death (fcntl %d): %w", c[0], err), life.Close(), end.Close())
		}
	}
	return life, end, nil
}

// letGo has this process's end tell nobody. The flag belongs to the open pipe, which the
// candidate shares.
func letGo(life int) { _ = fcntl(life, syscall.F_SETFL, 0) }

// canList: descendants lists all of them.
const canList = true

// entry is a process, by the numbers that /proc has for it.
type entry struct {
	id, parent, session int
	zombie              bool
	born                int64 // nanoseconds since boot, in steps of 10 ms
}

// tick is the unit of the times in /proc: USER_HZ, 100 on every architecture that
// Go runs on.
const tick = 1e9 / 100

// table is one look at all processes. It is read by hand: procfs takes twice as long for
// each, and tells nothing of a process if one of its 42 numbers is not as expected.
type table struct {
	self  int // this process
	all   []entry
	depth int // more than 0: /proc is an outer PID namespace's, and this one's numbers are so much further in
}

// look reads /proc. What is being born meanwhile may be missed: look again until
// nothing is left.
func look() (table, error) {
	t, names, err := list(-1)
	if err != nil {
		return table{}, err
	}
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			if e, ok := stat(id); ok {
				t.all = append(t.all, e)
			}
		}
	}
	return t, nil
}

// list reads who this process is in /proc, and the first n names there, or all for -1. It
// fails exactly if look does, and with n = 1 takes no longer where many processes run.
func list(n int) (t table, names []string, err error) {
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return t, nil, fmt.Errorf("no processes can be listed: %w; mount /proc", err)
	}
	if t.self, err = strconv.Atoi(link); err != nil {
		return t, nil, fmt.Errorf("no processes can be listed: /proc/self leads to %q", link)
	}
	if t.self != os.Getpid() { // as in unshare --pid without --mount-proc
		t.depth = len(numbers(t.self)) - 1
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return t, nil, fmt.Errorf("no processes can be listed: %w", err)
	}
	defer dir.Close()
	if names, err = dir.Readdirnames(n); err != nil {
		return t, nil, fmt.Errorf("no processes can be listed: %w", err)
	}
	return t, names, nil
}

// stat reads one process.
func stat(id int) (entry, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/stat")
	if err != nil {
		return entry{}, false
	}
	// pid (name) state parent group session ... born; the name may contain anything.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return entry{}, false
	}
	fields := bytes.Fields(data[i+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return entry{}, false
	}
	var n [4]int64
	for i, field := range []int{1, 3, 19, 17} {
		if n[i], err = strconv.ParseInt(string(fields[field]), 10, 64); err != nil {
			return entry{}, false
		}
	}
	// The first thread of a process may have ended, and others go on.
	zombie := (fields[0][0] == 'Z' || fields[0][0] == 'X') && n[3] <= 1
	return entry{id: id, parent: int(n[0]), session: int(n[1]), zombie: zombie, born: n[2] * tick}, true
}

// numbers are the ids of a process in the PID namespaces that it is in, from that
// of /proc inwards.
func numbers(id int) (all []int) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/status")
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(data) {
		if list, found := bytes.CutPrefix(line, []byte("NSpid:")); found {
			for f := range bytes.FieldsSeq(list) {
				if n, err := strconv.Atoi(string(f)); err == nil {
					all = append(all, n)
				}
			}
		}
	}
	return all
}

// local is the number by which this process knows one of /proc; false if it
// cannot see that.
func (t table) local(id int) (int, bool) {
	if t.depth <= 0 {
		return id, true
	}
	n := numbers(id)
	if len(n) <= t.depth {
		return 0, false
	}
	return n[t.depth], true
}

// below are the processes below this one.
func (t table) below() []entry {
	children := make(map[int][]entry)
	for _, e := range t.all {
		children[e.parent] = append(children[e.parent], e)
	}
	all := slices.Clone(children[t.self])
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].id]...)
	}
	return all
}

// descendants are the processes below this one that run.
func descendants() (pids []int) {
	t, err := look()
	if err != nil {
		return nil // Check has found no fault
	}
	for _, e := range t.below() {
		if pid, ok := t.local(e.id); ok && !e.zombie {
			pids = append(pids, pid)
		}
	}
	return pids
}

// orphans are the processes below this one that a guard, begun at since, has left
// behind. No process can enter another's session: what is in this process's own,
// as a helper of a store's client is, was not the guard's. Nor was what is below a guard
// that lives. Those that are dead are
// awaited here, as nobody else will; more reports whether there may be others, which are
// just being left by a parent that has died.
func orphans(since int64) (pids []int, more bool) {
	guards.mu.Lock() // so that none is begun meanwhile
	defer guards.mu.Unlock()
	t, err := look()
	if err != nil {
		return nil, false
	}
	session := -1
	for _, e := range t.all {
		if e.id == t.self {
			session = e.session
		}
	}
	left, guarded := make(map[int]bool), make(map[int]bool)
	for _, e := range t.below() { // parents first
		pid, ok := t.local(e.id)
		if guarded[e.parent] || ok && e.parent == t.self && guards.pids[pid] {
			guarded[e.id] = true
			continue
		}
		if !ok || e.session == session || e.born < since-tick {
			continue
		}
		left[e.id] = true
		switch {
		case !e.zombie:
			pids = append(pids, pid)
		case e.parent == t.self:
			if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got == 0 && err == nil {
				more = true // it is still about to die
			}
		case left[e.parent]:
			more = true
		}
	}
	return pids, more
}

// zombies are the children of this process that are dead and have not been awaited.
func zombies() (pids []int) {
	t, err := look()
	if err != nil {
		return nil
	}
	for _, e := range t.all {
		if pid, ok := t.local(e.id); ok && e.zombie && e.parent == t.self {
			pids = append(pids, pid)
		}
	}
	return pids
}

// owner tells a process to people: its name and the user that it runs as.
func owner(pid int) string {
	t, err := look()
	if err != nil {
		return ""
	}
	for _, e := range t.all {
		if n, ok := t.local(e.id); !ok || n != pid {
			continue
		}
		data, _ := os.ReadFile("/proc/" + strconv.Itoa(e.id) + "/status")
		var name, uid string
		for line := range bytes.Lines(data) {
			if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == "Name:" {
				name = string(f[1])
			} else if len(f) > 1 && string(f[0]) == "Uid:" {
				uid = string(f[1])
			}
		}
		return fmt.Sprintf("%s, of user %s", name, uid)
	}
	return ""
}
