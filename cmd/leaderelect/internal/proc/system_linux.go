package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const steadyClock = unix.CLOCK_BOOTTIME

// self is this program, also where its file was replaced since it started.
func self() (string, error) { return "/proc/self/exe", nil }

// adopt makes this process the parent of what its descendants leave behind.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming a child subreaper: %w", err)
	}
	return nil
}

// ownGroup is how the command is started: first of a process group, and killed
// when the thread that started it dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// descendants are the processes below pid, without zombies: all that run and
// have not been adopted by another. The list may miss what is being born; ask
// again until it is empty.
func descendants(pid int) []int {
	children := make(map[int][]int)
	for _, id := range processes() {
		if state, parent, _, ok := stat(id); ok && state != 'Z' && state != 'X' {
			children[parent] = append(children[parent], id)
		}
	}
	var all []int
	for next := []int{pid}; len(next) > 0; {
		below := children[next[0]]
		all = append(all, below...)
		next = append(next[1:], below...)
	}
	return all
}

// members are the processes of a session, and those whose environment has mark,
// without zombies.
func members(session int, mark string) []int {
	var all []int
	for _, id := range processes() {
		state, _, sid, ok := stat(id)
		if !ok || state == 'Z' || state == 'X' || id == os.Getpid() {
			continue
		}
		if sid == session || marked(id, mark) {
			all = append(all, id)
		}
	}
	return all
}

// marked says whether the process was started with mark in its environment.
func marked(pid int, mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // another user's, or gone
	}
	for e := range bytes.SplitSeq(env, []byte{0}) {
		if string(e) == mark {
			return true
		}
	}
	return false
}

// processes are the ids of all processes.
func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []int
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			all = append(all, id)
		}
	}
	return all
}

// stat reads the state, the parent and the session of a process.
func stat(pid int) (state byte, parent, session int, ok bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, 0, false
	}
	// pid (name) state parent group session ...; the name may contain anything.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return 0, 0, 0, false
	}
	fields := bytes.Fields(data[i+1:])
	if len(fields) < 4 || len(fields[0]) != 1 {
		return 0, 0, 0, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	session, err2 := strconv.Atoi(string(fields[3]))
	return fields[0][0], parent, session, err1 == nil && err2 == nil
}

// canList: descendants lists all of them.
const canList = true
