package lifeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
)

func TestDeathIsProved(t *testing.T) {
	ends := map[string]func(t *testing.T, p *process){
		"live":  func(_ *testing.T, p *process) { _ = p.Process.Kill() },
		"busy":  func(_ *testing.T, p *process) { _ = p.Process.Kill() },
		"panic": func(_ *testing.T, p *process) { _ = p.stdin.Close() },
		"abort": func(_ *testing.T, p *process) { _ = p.Process.Signal(syscall.SIGABRT) },
		"exits": func(_ *testing.T, p *process) { _ = p.stdin.Close() },
		"exec":  func(*testing.T, *process) {}, // its memory, and the view in it, is gone
	}
	if limit, limited := scarce(t); limited {
		ends["oom"] = func(t *testing.T, p *process) { limit(t, p); _ = p.stdin.Close() }
	}
	for role, end := range ends {
		t.Run(role, func(t *testing.T) {
			l, p := scene(t, role, "A", "B")
			if role != "exec" {
				alive(t, l, "A")
			}
			death, other := onDeath(t, l, "A"), onDeath(t, l, "B")
			end(t, p)
			told(t, death)
			told(t, other)
			if !l.Dead("A") || !l.Dead("B") {
				t.Error("told of a death that is not proved")
			}
			if err := l.Bury("A"); err != nil || l.Dead("A") || !l.Dead("B") {
				t.Errorf("after A was buried: %v, A %v, B %v", err, l.Dead("A"), l.Dead("B"))
			}
			if len(death)+len(other) != 0 {
				t.Error("told twice")
			}
		})
	}
}

// scarce returns what limits a process's memory, so that the kernel kills it when it takes more.
// It reports false if this machine does not let the test do that.
func scarce(t *testing.T) (limit func(t *testing.T, p *process), limited bool) {
	const bytes = 128 << 20
	for parent, file := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		group, err := os.MkdirTemp(parent, "leaderelection-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(group) })
		if os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(bytes)), 0) != nil {
			continue
		}
		return func(t *testing.T, p *process) {
			works(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(p.Process.Pid)), 0))
		}, true
	}
	t.Log("no group of processes with a limit of memory can be made here: a death by lack of it is not tried")
	return nil, false
}

func TestDeathIsToldWithoutInotify(t *testing.T) {
	inotifyInit = func(int) (int, error) { return -1, syscall.EMFILE }
	defer func() { inotifyInit = syscall.InotifyInit1 }()
	l, p := scene(t, "live", "A")
	death := onDeath(t, l, "A")
	p.kill()
	told(t, death)
}

// Whoever begins to watch the dead is told at once, and who has stopped is told nothing.
func TestWatchBeginsAndEnds(t *testing.T) {
	l, p := scene(t, "live", "A")
	stopped := make(chan struct{}, 1)
	l.OnDeath("A", func() { stopped <- struct{}{} })()
	first := onDeath(t, l, "A")
	p.kill()
	told(t, first)
	told(t, onDeath(t, l, "A"))
	if len(stopped) != 0 {
		t.Error("told after the watch had been stopped")
	}
}

// A process that is stopped, or debugged, is alive, however long it says nothing.
func TestStoppedIsAlive(t *testing.T) {
	l, p := scene(t, "busy", "A")
	works(t, p.Process.Signal(syscall.SIGSTOP))
	livesUntil(t, l, "A", onDeath(t, l, "A"), p.kill)
}

func TestInTheHandsOfADebugger(t *testing.T) {
	l := newLine(t)
	p := begin(t, "live", l.path, "A")
	p.SysProcAttr.Ptrace = true
	runtime.LockOSThread() // the debugger is a thread
	defer runtime.UnlockOSThread()
	works(t, p.Start())
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.Process.Pid, &status, 0, nil); err != nil || !status.Stopped() {
		t.Fatal(err, status)
	}
	works(t, syscall.PtraceDetach(p.Process.Pid))
	p.until(t, "alive")
	works(t, syscall.PtraceAttach(p.Process.Pid))
	if _, err := syscall.Wait4(p.Process.Pid, &status, syscall.WALL, nil); err != nil {
		t.Fatal(err)
	}
	livesUntil(t, l, "A", onDeath(t, l, "A"), func() {
		_ = syscall.PtraceDetach(p.Process.Pid)
		p.kill()
	})
	_ = p.Wait()
}

// Who has the file from the process belongs to it.
func TestChildThatActsForIt(t *testing.T) {
	l := newLine(t)
	p := begin(t, "child", l.path, "A")
	p.SysProcAttr = nil // the child of the process outlives it here
	feed := p.startFed(t)
	works(t, p.Wait())
	livesUntil(t, l, "A", onDeath(t, l, "A"), func() { feed.Close() }) // the child ends
}

// Who was not given the file does not keep the process alive.
func TestChildThatActsForItself(t *testing.T) {
	l := newLine(t)
	p := begin(t, "forgetful", l.path, "A")
	feed := p.startFed(t)
	defer feed.Close()
	p.kill()
	told(t, onDeath(t, l, "A"))
}

// A program that closes what is not its own is alive, and writes nothing into whatever has the
// descriptor's number now.
func TestDescriptorClosedByOthers(t *testing.T) {
	l, p := scene(t, "closer", "A", "B")
	livesUntil(t, l, "A", onDeath(t, l, "A"), p.kill)
}

func TestDescriptorOfAnother(t *testing.T) {
	l := newLine(t)
	dir := l.path
	works(t, l.Live("A"))
	victim := filepath.Join(memory(t), "victim")
	other := must(os.Create(victim))(t)
	defer other.Close()
	works(t, syscall.Dup3(int(other.Fd()), int(l.file.Fd()), syscall.O_CLOEXEC))
	if err := l.Live("B"); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a name for a file that is not open: %v", err)
	}
	alive(t, open(t, dir), "A")
	works(t, l.Close())
	if b, err := os.ReadFile(victim); err != nil || len(b) != 0 {
		t.Errorf("another's file was written to: %q, %v", b, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("names that are left: %v", left)
	}
	l.file.Close()
}

// What is no proof.
func TestForgedDeaths(t *testing.T) {
	l := killed(t, "DEAD")
	dir := l.path
	begin(t, "live", dir, "LIVE").start(t)
	live := filepath.Join(dir, "LIVE")
	content := must(os.ReadFile(live))(t)
	old := must(os.ReadFile(filepath.Join(dir, "DEAD")))(t)
	forge := func(what string, how func() error) {
		t.Helper()
		works(t, os.RemoveAll(live))
		alive(t, l, "LIVE") // whose name is gone
		if err := how(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if l.Dead("LIVE") {
			t.Errorf("%s is taken for a proof", what)
		}
		l.OnDeath("LIVE", func() { t.Errorf("%s: told of a death", what) })()
	}
	forge("a copy", func() error { return os.WriteFile(live, content, 0o600) })
	forge("a link to the file of another who is dead", func() error { return os.Link(filepath.Join(dir, "DEAD"), live) })
	forge("a symbolic link to it", func() error { return os.Symlink(filepath.Join(dir, "DEAD"), live) })
	forge("the content of another who is dead", func() error { return os.WriteFile(live, old, 0o600) })
	forge("an empty file", func() error { return os.WriteFile(live, nil, 0o600) })
	forge("a directory", func() error { return os.Mkdir(live, 0o700) })
	forge("a pipe", func() error { return syscall.Mkfifo(live, 0o600) })
	forge("a device", func() error { return os.Symlink("/dev/zero", live) })
	for _, name := range []string{"", ".", "..", "../" + filepath.Base(dir) + "/DEAD", "/dev/null", "DEAD\x00", "DEAD/", strings.Repeat("A", maxName+1), "\xff"} {
		if l.Dead(name) {
			t.Errorf("%q is taken for a name", name)
		}
		l.OnDeath(name, func() { t.Errorf("told of %q", name) })()
		if err := l.Live(name); err == nil {
			t.Errorf("the name %q is given", name)
		}
	}
	if !l.Dead("DEAD") {
		t.Error("the proof of the other is gone")
	}
}

// A file that was made before the machine was started anew is of nobody that is known.
func TestOtherBoot(t *testing.T) {
	l := killed(t, "A")
	later := open(t, l.path)
	later.boot = "7f6b2c1e-0000-0000-0000-000000000000"
	alive(t, later, "A")
}

// A process is no proof of its own death, nor are two Lifelines of one process of each other's.
func TestOwnProcessIsAlive(t *testing.T) {
	dir := memory(t)
	l, other := open(t, dir), open(t, dir)
	works(t, l.Live("A"), l.Live("B"), l.Live("A"))
	for _, name := range []string{"A", "B"} {
		alive(t, l, name)
		alive(t, other, name)
	}
	works(t, l.End("A"))
	if _, err := os.Stat(filepath.Join(dir, "A")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("A after its end: %v", err)
	}
	works(t, l.End("A"), l.Bury("B"))
	if _, err := os.Stat(filepath.Join(dir, "B")); err != nil {
		t.Errorf("one who lives was buried: %v", err)
	}
	// What stands there under a name of its own is another's.
	works(t, l.Live("C"), os.Remove(filepath.Join(dir, "C")), os.WriteFile(filepath.Join(dir, "C"), nil, 0o600), l.End("C"))
	if err := os.Remove(filepath.Join(dir, "C")); err != nil {
		t.Errorf("the file of another was removed: %v", err)
	}
	works(t, l.Close())
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("names that are left: %v", left)
	}
}

// A process may lead again and again, and campaign again after all of its campaigns have ended. It has
// one file for all of that, whose names of before are removed.
func TestNamesOneAfterTheOther(t *testing.T) {
	dir := memory(t)
	l, other := open(t, dir), open(t, dir)
	for _, name := range []string{"A", "B", "C"} {
		works(t, l.Live(name))
		alive(t, other, name)
		works(t, l.End(name))
	}
	works(t, l.Live("C"), l.Live("D"), l.End("D"))
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "C" {
		t.Errorf("names %v, want C: %v", left, err)
	}
	works(t, l.End("C"), l.Close())
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("after Close there are %v: %v", left, err)
	}
}

func TestThousandCampaigns(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	l := newLine(t)
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("N", i)
	}
	p := begin(t, "live", l.path, names...).start(t)
	var told sync.WaitGroup
	for _, n := range names {
		told.Add(1)
		t.Cleanup(l.OnDeath(n, told.Done))
	}
	l.watches.mu.Lock()
	if n := len(l.watches.all); n != len(names) {
		t.Errorf("%d are watched", n)
	}
	l.watches.mu.Unlock()
	p.kill()
	told.Wait()
}

// A directory is refused where others could forge a death, or where what is in it is not this
// machine's alone.
func TestDirRefuses(t *testing.T) {
	shm := memory(t)
	open, group, file := filepath.Join(shm, "open"), filepath.Join(shm, "group"), filepath.Join(shm, "file")
	works(t, os.Mkdir(open, 0o700), os.Chmod(open, 0o777), os.Mkdir(group, 0o700), os.Chmod(group, 0o770), os.WriteFile(file, nil, 0o600))
	for what, c := range map[string]struct{ dir, says string }{
		"a disk":               {t.TempDir(), "not in memory"},
		"who may write: all":   {open, "chmod 0755"},
		"who may write: group": {group, "chmod 0755"},
	} {
		if what == "a disk" {
			var fs syscall.Statfs_t
			if err := syscall.Statfs(c.dir, &fs); err != nil || uint32(fs.Type) == tmpfsMagic {
				t.Logf("%s is in memory: a disk is not tried", c.dir)
				continue
			}
		}
		if l, err := Dir(c.dir); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.dir) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", what, l, err)
		}
	}
	for _, dir := range []string{file, filepath.Join(shm, "a", "b")} {
		if l, err := Dir(dir); err == nil {
			t.Errorf("%s: %v", dir, l)
		}
	}
	if asRoot(t, "the directory is another user's") {
		others := filepath.Join(shm, "others")
		works(t, os.Mkdir(others, 0o700), os.Chown(others, 65534, 65534))
		if _, err := Dir(others); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "65534") {
			t.Errorf("another's: %v", err)
		}
	}
}

// A directory is made if it is missing, for this user alone to write to. If it is moved, or mounted over, it is still
// the one that was opened.
func TestDirIsMoved(t *testing.T) {
	shm := memory(t)
	dir := filepath.Join(shm, "here")
	l := open(t, dir)
	if st := must(os.Stat(dir))(t); st.Mode().Perm()&0o022 != 0 || l.String() != dir {
		t.Errorf("%s has mode %v", l, st.Mode())
	}
	p := begin(t, "live", dir, "A").start(t)
	works(t, os.Rename(dir, filepath.Join(shm, "there")), os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "A"), nil, 0o600))
	alive(t, l, "A")
	p.kill()
	told(t, onDeath(t, l, "A"))
}

func TestClosedTellsNothing(t *testing.T) {
	t.Run("while it looks", func(t *testing.T) {
		l, p := scene(t, "live", "A")
		l.OnDeath("A", func() { t.Error("told after Close") })
		looks, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		hold := func() { once.Do(func() { close(looks) }); <-goOn }
		whileLooking.Store(&hold)
		defer whileLooking.Store(nil)
		p.kill()
		_ = p.Wait()
		told(t, looks)
		closed := make(chan struct{})
		go func() { defer close(closed); _ = l.Close() }()
		for closing := false; !closing; time.Sleep(time.Millisecond) {
			l.watches.mu.Lock()
			closing = l.watches.closing
			l.watches.mu.Unlock()
		}
		close(goOn)
		told(t, closed)
	})
	l, p := scene(t, "live", "A")
	l.OnDeath("A", func() { t.Error("told after Close") })
	works(t, l.Close())
	p.kill()
	_ = p.Wait()
	l.OnDeath("A", func() { t.Error("told after Close") })()
	if err := l.Live("B"); err == nil {
		t.Error("a name after Close")
	}
}

// Whatever a file of the directory says, and whatever name a record has, the death of that name is proved
// if the file says that it is itself, of this boot, and has the name, and in no other case. While somebody
// holds the file locked, nothing that it says is a proof. In the content [boot], [dev], [ino] and [name] stand for
// what is true of the file. It is tried as it is, and with a byte more, less, and another.
func FuzzContent(f *testing.F) {
	const whole = header + "\nboot [boot]\nfile [dev] [ino]\npid 1\nname OTHER\nname [name]\n"
	for _, content := range []string{
		whole, "", "\n\n\n\n", strings.TrimSuffix(whole, "\n"), strings.ReplaceAll(whole, "\n", "\r\n"), whole + "\x00\xff",
		strings.Replace(whole, "[boot]", "7f6b2c1e-0000-0000-0000-000000000000", 1), strings.Replace(whole, "[ino]", "1", 1),
		strings.Replace(whole, "lifeline 1", "lifeline 2", 1), header + "\nboot [boot]\nfile [dev] [ino]\nname [name]\n",
	} {
		f.Add([]byte(content), "A", uint16(0), byte(' '))
	}
	for _, name := range []string{"", ".", "..", "../A", "a/b", "A\x00", "A\n", "ü", strings.Repeat("A", maxName), strings.Repeat("A", maxName+1)} {
		f.Add([]byte(whole), name, uint16(0), byte(' '))
	}
	shm := must(os.MkdirTemp("/dev/shm", "lifeline-test-"))(f)
	f.Cleanup(func() { os.RemoveAll(shm) })
	l := must(Dir(filepath.Join(shm, "dir")))(f)
	f.Cleanup(func() { _ = l.Close() })
	f.Fuzz(func(t *testing.T, content []byte, name string, at uint16, b byte) {
		begin := int(at) % (len(content) + 1)
		before, after := string(content[:begin]), string(content[begin:])
		for _, text := range []string{before + after, before + string([]byte{b}) + after, before + after[min(1, len(after)):], before + string([]byte{b}) + after[min(1, len(after)):]} {
			proves(t, l, text, name)
		}
	})
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// proves makes a file with a content, of that name if it can have it, and checks what it proves.
func proves(t *testing.T, l *Lifeline, content, name string) {
	t.Helper()
	path := filepath.Join(l.path, name)
	if filepath.Dir(path) != l.path || strings.ContainsAny(name, "/\x00") {
		path = filepath.Join(l.path, "A") // no file has such a name
	}
	file, err := os.Create(path)
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(path)
	defer file.Close()
	is, _, err := identify(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("[boot]", l.boot, "[dev]", fmt.Sprint(is.dev), "[ino]", fmt.Sprint(is.ino), "[name]", name).Replace(content)
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	rest, itself := strings.CutPrefix(text, fmt.Sprintf("%s\nboot %s\nfile %d %d\n", header, l.boot, is.dev, is.ino))
	_, names, _ := strings.Cut(rest, "\n") // after the line with the pid
	proof := itself && validName.MatchString(name) && strings.Contains("\n"+names+"\n", "\nname "+name+"\n")
	works(t, flock(int(file.Fd()), syscall.LOCK_EX))
	if l.Dead(name) {
		t.Fatalf("%q is proved dead by a file that is locked", name)
	}
	file.Close()
	if l.Dead(name) != proof {
		t.Fatalf("%q is proved dead: %v, by\n%s", name, !proof, text)
	}
	works(t, l.Bury(name))
	if left, err := os.ReadFile(path); errors.Is(err, os.ErrNotExist) != proof || err == nil && string(left) != text {
		t.Errorf("proved: %v; what was looked at is now %q, %v", proof, left, err)
	}
}

// A leader is a role of a process. The name that it is given is its record's.
func init() { provers["leader"] = leads }

// candidate is one whose term nobody waits for in a test.
func candidate(line *Lifeline, record, id string) le.Config {
	return le.Config{Decider: file.NewDecider(record, nil), LeaderID: id, TermLength: 10 * time.Minute, ClockPolicy: le.SharedClock, Lifeline: line}
}

func leads(line *Lifeline, record string) error {
	c := candidate(line, record, "child")
	before, leave := context.WithCancel(context.Background())
	defer leave()
	for _, ctx := range []context.Context{before, context.Background()} { // its second campaign is as provable as its first
		campaign, err := c.Start(ctx)
		if err != nil {
			return err
		}
		l, err := campaign.Lead(ctx)
		if err != nil {
			return err
		}
		if ctx == before {
			l.Release()
			leave()
			<-campaign.Done()
		}
	}
	fmt.Println("alive")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has ended
	return nil
}

// A leader's process is killed, with a term of ten minutes: the standby on its machine leads, and so
// does a process that is started after it. One that is stopped is waited for.
func TestStandbyLeadsWhenTheProcessDies(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	l, record := newLine(t), filepath.Join(t.TempDir(), "record")
	first := begin(t, "leader", l.path, record).start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	standby := must(candidate(l, record, "standby").Start(ctx))(t)
	for standby.Leader().LeaderID != "child" {
		time.Sleep(10 * time.Millisecond)
	}
	works(t, first.Process.Signal(syscall.SIGSTOP))
	time.Sleep(2 * time.Second)
	if standby.View().ValueInFuture() || standby.Leader().LeaderID != "child" {
		t.Fatal("a leader that is stopped was taken for dead")
	}
	killed := time.Now()
	_ = first.Process.Kill()
	lead := must(standby.Lead(ctx))(t)
	t.Logf("led %v after the kill", time.Since(killed))
	lead.Release()
	cancel()
	<-standby.Done()
	works(t, l.Close())
	for range 2 { // the record is vacant now, and then a dead one's
		next := begin(t, "leader", l.path, record).start(t)
		_ = next.Process.Kill()
		_ = next.Wait()
	}
	if names, err := filepath.Glob(l.path + "/*"); err != nil || len(names) != 1 {
		t.Errorf("%v are left, %v: want that of the last to die, which nobody has followed", names, err)
	}
}
