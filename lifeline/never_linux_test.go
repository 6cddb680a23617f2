package lifeline

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/rules/mutants"
)

// inNamespace starts a process in namespaces of its own, in which it is root.
func (p *process) inNamespace(flags uintptr) *process {
	p.SysProcAttr.Cloneflags = flags | syscall.CLONE_NEWUSER
	p.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	p.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	return p
}

// A directory that is mounted twice is one: who sees it by one path has proof of who sees it by the
// other. What is mounted over it is another.
func TestMountedTwiceAndOver(t *testing.T) {
	dir := memory(t)
	t.Cleanup(func() { os.Remove(dir + "-again") })
	l := open(t, dir)
	p := begin(t, "bound", dir, "A").inNamespace(syscall.CLONE_NEWNS).start(t)
	over := begin(t, "covered", dir, "A").inNamespace(syscall.CLONE_NEWNS).start(t)
	for range 1000 {
		alive(t, l, "A")
	}
	if over.ask(t) {
		t.Fatal("proved by another file system")
	}
	death := onDeath(t, l, "A")
	p.kill()
	told(t, death)
	if over.ask(t) {
		t.Error("proved by another file system")
	}
}

func TestFullMemory(t *testing.T) {
	begin(t, "full", memory(t), "A").inNamespace(syscall.CLONE_NEWNS).start(t)
}

// No watches of inotify are left: the files are polled.
func TestNoWatchesLeft(t *testing.T) {
	dir := memory(t)
	p := begin(t, "live", dir, "A").start(t)
	watcher := begin(t, "unwatched", dir, "A").inNamespace(0).start(t)
	p.kill()
	watcher.until(t, "told")
}

// A child that has not become another program is the process still.
func TestForkedAndNotYetAnotherProgram(t *testing.T) {
	l := newLine(t)
	p := begin(t, "fork", l.path, "A")
	works(t, p.Start())
	var child int
	if _, err := fmt.Sscan(strings.TrimPrefix(p.until(t, "child"), "child"), &child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	death := onDeath(t, l, "A")
	p.kill()
	_, _ = p.Process.Wait()
	livesUntil(t, l, "A", death, func() { _ = syscall.Kill(child, syscall.SIGKILL) })
}

// A process whose first thread has ended is alive while others run.
func TestThreadsThatEndLast(t *testing.T) {
	l, p := scene(t, "threads", "A")
	for state := ""; state != "Z"; time.Sleep(time.Millisecond) {
		stat := must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid)))(t)
		_, rest, _ := strings.Cut(string(stat), ") ")
		state = rest[:1]
	}
	livesUntil(t, l, "A", onDeath(t, l, "A"), p.kill)
}

// A process that was killed in a system call which nothing interrupts may go on in it: it is alive.
func TestKilledAndNotDead(t *testing.T) {
	if !asRoot(t, "a file system is frozen") {
		return
	}
	dir, disk := memory(t), t.TempDir()
	image, frozen := filepath.Join(disk, "image"), filepath.Join(disk, "frozen")
	for _, c := range [][]string{
		{"truncate", "-s", "4M", image}, {"mkfs.ext4", "-q", image}, {"mkdir", frozen},
		{"mount", "-o", "loop", image, frozen}, {"fsfreeze", "-f", frozen},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", c, err, out)
		}
		switch c[0] {
		case "mount":
			t.Cleanup(func() { _ = exec.Command("umount", "-l", frozen).Run() })
		case "fsfreeze":
			t.Cleanup(func() { _ = exec.Command("fsfreeze", "-u", frozen).Run() })
		}
	}
	l := open(t, dir)
	p := begin(t, "stuck", dir, "A")
	p.Env = append(p.Env, "LIFELINE_FROZEN="+filepath.Join(frozen, "file"))
	p.start(t)
	death := onDeath(t, l, "A")
	stuck := func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Process.Pid))
		for _, task := range tasks {
			if stat, err := os.ReadFile(task); err == nil && strings.Contains(string(stat), ") D ") {
				return true
			}
		}
		return false
	}
	for !stuck() {
		time.Sleep(time.Millisecond)
	}
	p.kill()
	livesUntil(t, l, "A", death, func() {
		if !stuck() {
			t.Error("it is not stuck")
		}
		if out, err := exec.Command("fsfreeze", "-u", frozen).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
}

// A user that may not read the file has no proof.
func TestUserWhoMayNotRead(t *testing.T) {
	if !asRoot(t, "another user looks") {
		return
	}
	shm := memory(t)
	dir := filepath.Join(shm, "theirs")
	works(t, os.Chmod(shm, 0o755), os.Mkdir(dir, 0o755), os.Chown(dir, 65533, 65533))
	program := forAll(t, os.Args[0])
	user := func(role, name string) *process {
		p := begin(t, role, dir, name)
		p.Path, p.SysProcAttr.Credential = program, &syscall.Credential{Uid: 65533, Gid: 65533}
		return p.start(t)
	}
	hidden, shown := user("unreadable", "A"), user("live", "B")
	_ = hidden.Process.Kill()
	_ = shown.Process.Kill()
	_, _ = hidden.Wait(), shown.Wait()
	for name, dead := range map[string]bool{"A": false, "B": true} {
		if user("prover", name).ask(t) != dead {
			t.Errorf("the proof of the death of %s is %v", name, !dead)
		}
	}
}

// forAll returns a copy of a program that any user may run.
func forAll(t *testing.T, program string) string {
	t.Helper()
	b := must(os.ReadFile(program))(t)
	dir := memory(t)
	path := filepath.Join(dir, "program")
	works(t, os.Chmod(dir, 0o755), os.WriteFile(path, b, 0o755))
	return path
}

// In a user namespace that lacks users, a directory of anybody may seem to be this user's.
func TestOwnerWhoIsNotKnown(t *testing.T) {
	if !asRoot(t, "the directory is another user's") {
		return
	}
	shm := memory(t)
	dir := filepath.Join(shm, "others")
	works(t, os.Chmod(shm, 0o755), os.Mkdir(dir, 0o755), os.Chown(dir, 1234, 1234))
	p := begin(t, "prover", dir, "A")
	p.Path = forAll(t, os.Args[0])
	p.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	p.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: overflowUID, HostID: overflowUID, Size: 1}}
	p.SysProcAttr.GidMappings = p.SysProcAttr.UidMappings
	p.SysProcAttr.Credential = &syscall.Credential{Uid: overflowUID, Gid: overflowUID, NoSetGroups: true}
	works(t, p.Start())
	defer func() { _ = p.Process.Kill(); _ = p.Wait() }()
	if !p.said.Scan() || !strings.Contains(p.said.Text(), "may be anybody") {
		t.Errorf("it says %q", p.said.Text())
	}
}

// If a descriptor was passed on, and the process that has it unlocks it, that does not count as a death.
func TestDescriptorThatIsUnlocked(t *testing.T) {
	l, p := scene(t, "unlocker", "A")
	livesUntil(t, l, "A", onDeath(t, l, "A"), p.kill)
}

// It is locked again before the next write of the lease: for the children.
func TestDescriptorIsLockedAgain(t *testing.T) {
	l := newLine(t)
	p := begin(t, "relocked", l.path, "A")
	feed := p.startFed(t)
	death := onDeath(t, l, "A")
	p.kill()
	_, _ = p.Process.Wait()
	livesUntil(t, l, "A", death, func() { feed.Close() })
}

// A process that has become another user, and can remove its names no more, is not proved dead by
// the end of its Lifeline.
func TestNamesThatCannotBeRemoved(t *testing.T) {
	if !asRoot(t, "a process becomes another user") {
		return
	}
	for role, proved := range map[string]bool{"humbled": false, "humbled closer": true} {
		t.Run(role, func(t *testing.T) {
			l, p := scene(t, role, "A", "B")
			death := onDeath(t, l, "A")
			for range 1000 {
				alive(t, l, "A")
				alive(t, l, "B")
			}
			p.kill()
			if proved {
				told(t, death)
			} else if _ = p.Wait(); l.Dead("A") || l.Dead("B") {
				t.Error("a name that was unsaid is a proof")
			}
		})
	}
}

// A name that comes to stand for another file while it is looked at proves nothing: that of a process
// that was dead is taken over by one that lives, which may not be proved dead by the lock of the old.
func TestNameThatIsReplaced(t *testing.T) {
	l := killed(t, "A")
	living := open(t, l.path)
	works(t, living.Live("B"))
	a, b, aside := filepath.Join(l.path, "A"), filepath.Join(l.path, "B"), filepath.Join(l.path, "aside")
	replace := func() {
		works(t, os.Rename(a, aside), os.Link(b, a))
	}
	whileLooking.Store(&replace)
	defer whileLooking.Store(nil)
	alive(t, l, "A")
}

// No name is ever seen whose lock is free while its process lives: two look for what a thousand
// others make.
func TestLockedBeforeItHasAName(t *testing.T) {
	l := newLine(t)
	done := make(chan struct{})
	var lookers sync.WaitGroup
	for range 2 {
		lookers.Add(1)
		go func() {
			defer lookers.Done()
			for {
				select {
				case <-done:
					return
				default:
				}
				entries, _ := os.ReadDir(l.path)
				for _, e := range entries {
					if l.Dead(e.Name()) {
						t.Errorf("%s is said to be dead", e.Name())
						return
					}
				}
			}
		}()
	}
	for i := range 1000 {
		if t.Failed() {
			break
		}
		of := must(Dir(l.path))(t)
		works(t, of.Live(fmt.Sprint("N", i)), of.Close())
	}
	close(done)
	lookers.Wait()
}

// Of those who live there is no proof, whatever they do, and whatever is done in the directory by
// others who may write there: in 10,000 tries for each, on a machine that is busy.
func TestNeverEarly(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	dir := memory(t)
	l := open(t, dir)
	roles := []string{"busy", "spawner", "churn", "live", "unlocker", "threads"}
	var names []string
	var all []*process
	for _, role := range roles {
		names, all = append(names, role), append(all, begin(t, role, dir, role).start(t))
	}
	watcher := open(t, dir)
	var deaths []<-chan struct{}
	for _, n := range names {
		deaths = append(deaths, onDeath(t, watcher, n))
	}
	done := make(chan struct{})
	var others sync.WaitGroup
	for _, do := range []func(){
		func() { // stopped, and let go on
			for _, p := range all {
				_ = p.Process.Signal(syscall.SIGSTOP)
				time.Sleep(time.Millisecond)
				_ = p.Process.Signal(syscall.SIGCONT)
			}
		},
		func() { // links to their files, and copies
			for _, n := range names[1:] {
				was, link := filepath.Join(dir, n), filepath.Join(dir, "L"+n)
				_ = os.Link(was, link)
				if b, err := os.ReadFile(was); err == nil {
					_ = os.WriteFile(filepath.Join(dir, "W"+n), b, 0o600)
				}
				_ = l.Dead("L" + n)
				_ = os.Rename(link, was) // of one file: nothing happens
				_ = os.Remove(link)
			}
		},
		func() { // names that are taken away, replaced by a copy, and put back
			was, aside := filepath.Join(dir, names[0]), filepath.Join(dir, "aside")
			if b, err := os.ReadFile(was); err == nil {
				_ = os.Rename(was, aside)
				_ = os.WriteFile(was, b, 0o600)
				time.Sleep(time.Millisecond)
				_ = os.Rename(aside, was)
			}
		},
		func() { // opened for writing, and closed: the watchers are told
			for _, n := range names {
				if f, err := os.OpenFile(filepath.Join(dir, n), os.O_WRONLY, 0); err == nil {
					f.Close()
				}
			}
			time.Sleep(10 * time.Millisecond)
		},
	} {
		others.Add(1)
		go func() {
			defer others.Done()
			for {
				select {
				case <-done:
					return
				default:
					do()
				}
			}
		}()
	}
	var tries sync.WaitGroup
	for range 4 {
		prover := open(t, dir)
		tries.Add(1)
		go func() {
			defer tries.Done()
			for range 2500 {
				for _, n := range names {
					if prover.Dead(n) {
						t.Errorf("%s is said to be dead", n)
						return
					}
				}
			}
		}()
	}
	tries.Wait()
	close(done)
	others.Wait()
	for i, death := range deaths {
		if len(death) != 0 {
			t.Errorf("told of the death of %s, who lives", names[i])
		}
	}
	for i, p := range all {
		p.kill()
		told(t, deaths[i])
	}
}

type change = mutants.Edit

var here = mutants.Package{Code: []string{"."}, Tests: []string{"."}}

func TestEveryMutantHasItsPlace(t *testing.T) { here.Check(t, planted) }

// TestMutants builds each mutant, and runs the tests that must notice it.
func TestMutants(t *testing.T) { here.Run(t, planted) }

// planted are this package with one mistake in it each.
var planted = []mutants.Mutant{
	{Name: "proof by absence",
		Edit: change{"	fd, err := openat(int(l.dir.Fd()), name, openNameFlags, 0)\n	if err != nil {\n		return\n	}\n	defer syscall.Close(fd)\n	if flock", "	fd, err := openat(int(l.dir.Fd()), name, openNameFlags, 0)\n	if err != nil {\n		dead(-1)\n		return\n	}\n	defer syscall.Close(fd)\n	if flock"}, CaughtBy: "TestForgedDeaths|TestUserWho"},
	{Name: "proof by a lock that was refused",
		Edit: change{"if flock(fd, syscall.LOCK_SH) != nil || lockOFD(fd, syscall.F_RDLCK) != nil {", "if flock(fd, syscall.LOCK_SH) == nil {"}, CaughtBy: "TestOwnProcess"},
	{Name: "the lock that is passed on is not asked for",
		Edit: change{"if flock(fd, syscall.LOCK_SH) != nil || lockOFD", "if lockOFD"}, CaughtBy: "TestChildThatActsForIt"},
	{Name: "the lock that is passed on is all",
		Edit: change{" || lockOFD(fd, syscall.F_RDLCK) != nil {", " {"}, CaughtBy: "TestDescriptorThatIsUnlocked"},
	{Name: "proof by another file of the name",
		Edit: change{" || !l.bears(fd, is, name) {", " {"}, CaughtBy: "TestForgedDeaths"},
	{Name: "a copy is the file",
		Edit: change{"string(lines[1]) != \"boot \"+l.boot ||\n", "string(lines[1]) != \"boot \"+l.boot || lines[2] == nil && \n"}, CaughtBy: "TestForgedDeaths"},
	{Name: "a name is any name",
		Edit: change{"if string(line) == \"name \"+name {", "if len(line) > 0 {"}, CaughtBy: "TestForgedDeaths"},
	{Name: "another boot's file",
		Edit: change{"string(lines[1]) != \"boot \"+l.boot ||", ""}, CaughtBy: "TestOtherBoot"},
	{Name: "the name may stand for another file by now",
		Edit: change{"err == nil && now == is {", "err == nil || now == is {"}, CaughtBy: "TestNameThatIsReplaced"},
	{Name: "not locked again",
		Edit: change{"	_ = flock(int(l.file.Fd()), syscall.LOCK_EX) // again", "	// again"}, CaughtBy: "TestDescriptorIsLockedAgain"},
	{Name: "not held by the process's memory",
		Edit: change{"	l.mapped, err = syscall.Mmap(own, 0, os.Getpagesize(), syscall.PROT_READ, syscall.MAP_SHARED)", "	l.mapped, err = syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ, syscall.MAP_PRIVATE|syscall.MAP_ANON)"}, CaughtBy: "TestDescriptorClosedByOthers"},
	{Name: "a disk will do",
		Edit: change{"kind != tmpfsMagic && kind != ramfsMagic {", "kind == 1 {"}, CaughtBy: "TestDirRefuses"},
	{Name: "others may write",
		Edit: change{"st.Mode&0o022 != 0 {", "false {"}, CaughtBy: "TestDirRefuses"},
	{Name: "anybody's directory",
		Edit: change{"if st.Uid != 0 && int(st.Uid) != os.Geteuid() {", "if false {"}, CaughtBy: "TestDirRefuses"},
	{Name: "an owner who is not known",
		Edit: change{"st.Uid == overflowUID && !allUsers() {", "false {"}, CaughtBy: "TestOwnerWhoIsNotKnown"},
	{Name: "a file that has ended loses its last name",
		Edit: change{"if len(l.names) == 1 && l.isOpen() == nil {", "if false {"}, CaughtBy: "TestNamesOneAfter"},
	{Name: "the name of before stays",
		Edit: change{"		_ = l.unname(l.ended) // or", "		// or"}, CaughtBy: "TestNamesOneAfter"},
	{Name: "a name that is used again goes with the next",
		Edit: change{"		if l.ended == name {", "		if false {"}, CaughtBy: "TestNamesOneAfter"},
	{Name: "names that cannot be removed are forgotten",
		Edit: change{"if len(left) > 0 && (", "if false && ("}, CaughtBy: "TestNamesThatCannot"},
	{Name: "closed, and named still",
		Edit: change{"l.write(rest) != nil) {", "false) {"}, CaughtBy: "TestNamesThatCannot"},
	{Name: "the descriptor is not looked at",
		Edit: change{"err != nil || is != l.id {\n		return fmt.Errorf(\"lifeline: the desc", "err != nil || is.ino == 1 {\n		return fmt.Errorf(\"lifeline: the desc"}, CaughtBy: "TestDescriptorOfAnother"},
	{Name: "a close is a death",
		Edit: change{"		if l.Dead(w.name) {\n			l.report(w)\n			return\n		}\n		select", "		{\n			l.report(w)\n			return\n		}\n		select"}, CaughtBy: "TestNeverEarly"},
	{Name: "nothing is polled", Hangs: true,
		Edit: change{"	if w.wd == 0 && !s.polling {", "	if false {"}, CaughtBy: "TestDeathIsToldWithout"},
	{Name: "not looked at when the watch has begun", Hangs: true,
		Edit: change{"	if l.Dead(name) { // looked", "	if false { // looked"}, CaughtBy: "TestWatchBegins"},
	{Name: "what is watched for is told after the end",
		Edit: change{"	clear(s.all)\n", ""}, CaughtBy: "TestClosedTells"},
}
