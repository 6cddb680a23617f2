package proc

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
)

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
