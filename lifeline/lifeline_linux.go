package lifeline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Lifeline is this process's locked file in a directory. Set Config.Lifeline to it. It also judges
// the files of other processes there. Its methods may be called by any number of goroutines at
// once.
type Lifeline struct {
	path string
	dir  *os.File // names are looked up in this very directory, whatever becomes of its path
	boot string

	mu     sync.Mutex
	file   *os.File // locked; it is passed on to others
	id     id
	names  []string // the file's, in order of their making
	ended  string   // the last name, if its campaign has ended
	closed bool

	// The file is open a second time, with a lock of another kind. This one is passed on to
	// nobody. So a child that unlocks the file it was given does not make this process look
	// dead. The file is mapped, although nothing reads the mapping: so it stays open and
	// locked even if the program closes descriptors that are not its own.
	mapped []byte

	watches watches
}

// id identifies a file on this machine.
type id struct{ dev, ino uint64 }

// Numbers of the kernel that package syscall lacks. Both flags are the same on every processor
// that Go runs on under Linux.
const (
	tmpfsMagic    = 0x01021994
	ramfsMagic    = 0x858458f6
	oTmpfile      = 0o20000000 | syscall.O_DIRECTORY
	atFdcwd       = -100
	atFollow      = 0x400
	fOFDSetlk     = 37
	bootIDFile    = "/proc/sys/kernel/random/boot_id"
	header        = "leaderelection lifeline 1"
	maxContent    = 64 << 20
	openNameFlags = syscall.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_CLOEXEC | syscall.O_NOCTTY
)

// advice says in errors which directories will do.
const advice = "use a directory in memory, such as one below /run, $XDG_RUNTIME_DIR or /dev/shm, or in Kubernetes a volume emptyDir with medium: Memory"

// Dir returns this process's lifeline in the directory path. Call it once in a process, and use
// the result for all of its campaigns. All processes of the machine that should learn of each
// other's death must use the same directory. If only the last element of path is missing, Dir
// makes it, so that only this user may write to it.
//
// If the directory cannot have lifelines, the error wraps ErrUnsupported, and says why.
func Dir(path string) (*Lifeline, error) {
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("lifeline: making the directory: %w", err)
	}
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("lifeline: opening the directory: %w", err)
	}
	l := &Lifeline{path: path, dir: dir}
	if err := l.open(); err != nil {
		dir.Close()
		return nil, err
	}
	return l, nil
}

func (l *Lifeline) open() error {
	if err := l.checkDir(); err != nil {
		return err
	}
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return fmt.Errorf("%w: /proc must be mounted: %w", ErrUnsupported, err)
	}
	l.boot = strings.TrimSpace(string(boot))
	fd, err := openat(int(l.dir.Fd()), ".", oTmpfile|syscall.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("lifeline: making a file in %s: %w", l.path, err)
	}
	l.file = os.NewFile(uintptr(fd), l.path)
	// Locked before it has a name. So a name whose lock is free is never seen while its process
	// lives.
	if err := errors.Join(flock(fd, syscall.LOCK_EX), l.hold(fd)); err != nil {
		l.file.Close()
		return fmt.Errorf("lifeline: locking the file in %s: %w", l.path, err)
	}
	return nil
}

// hold keeps the file locked for as long as this process's memory is there, whatever becomes of
// the descriptor fd.
func (l *Lifeline) hold(fd int) error {
	own, err := openat(atFdcwd, "/proc/self/fd/"+strconv.Itoa(fd), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(own) // the mapping keeps the file open
	if err := lockOFD(own, syscall.F_WRLCK); err != nil {
		return err
	}
	if l.id, _, err = identify(fd); err != nil {
		return err
	}
	l.mapped, err = syscall.Mmap(own, 0, os.Getpagesize(), syscall.PROT_READ, syscall.MAP_SHARED)
	return err
}

// checkDir refuses a directory that is not in the memory of this machine alone, or that somebody
// else may write to.
func (l *Lifeline) checkDir() error {
	fd := int(l.dir.Fd())
	var fs syscall.Statfs_t
	if err := ignoringEINTR(func() error { return syscall.Fstatfs(fd, &fs) }); err != nil {
		return fmt.Errorf("lifeline: asking for the file system of %s: %w", l.path, err)
	}
	if kind := uint32(fs.Type); kind != tmpfsMagic && kind != ramfsMagic {
		return fmt.Errorf("%w: %s is not in memory (its file system is %#x, not tmpfs): what is on a disk or a network is not this machine's alone: %s",
			ErrUnsupported, l.path, kind, advice)
	}
	var st syscall.Stat_t
	if err := ignoringEINTR(func() error { return syscall.Fstat(fd, &st) }); err != nil {
		return fmt.Errorf("lifeline: looking at %s: %w", l.path, err)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d, who could forge a death: it must belong to root or to this user (%d): use a directory of your own below it",
			ErrUnsupported, l.path, st.Uid, os.Geteuid())
	}
	if st.Uid == overflowUID && !allUsers() {
		return fmt.Errorf("%w: %s belongs to user %d, which in this user namespace may be anybody: run as another user, or in the machine's own user namespace",
			ErrUnsupported, l.path, st.Uid)
	}
	if st.Mode&0o022 != 0 {
		return fmt.Errorf("%w: others may write to %s (mode %04o), who could forge a death: use a directory of your own below it, or chmod 0755 %s",
			ErrUnsupported, l.path, st.Mode&0o7777, l.path)
	}
	return nil
}

// overflowUID is the owner that the kernel shows if this user namespace does not have the real
// owner.
const overflowUID = 65534

// allUsers reports whether this user namespace has all users of the machine.
func allUsers() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"})
}

// String returns the directory.
func (l *Lifeline) String() string { return l.path }

// File returns the locked file. Pass it on to a child process that acts for this process. The
// lock is then free when the last process that has the file is gone. Only Close closes the
// file. A child that unlocks it (flock(2), LOCK_UN) does so for all children, until this
// process's next write of a lease. This process itself does not look dead then.
func (l *Lifeline) File() *os.File { return l.file }

// Live gives this process's file a name. A campaign calls it before its first write, and so
// before anybody else can learn of the name. An error means only that the death of that
// incarnation will not be proved.
func (l *Lifeline) Live(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.isOpen(); err != nil {
		return err
	}
	_ = flock(int(l.file.Fd()), syscall.LOCK_EX) // again, if one to whom it was passed on has unlocked it
	if slices.Contains(l.names, name) {
		if l.ended == name {
			l.ended = ""
		}
		return nil
	}
	names := append(slices.Clone(l.names), name)
	if err := l.write(names); err != nil {
		return fmt.Errorf("lifeline: writing the names of this process in %s: %w", l.path, err)
	}
	if err := link(l.file, int(l.dir.Fd()), name); err != nil {
		return fmt.Errorf("lifeline: linking %s in %s: %w", name, l.path, err)
	}
	l.names = names
	if l.ended != "" {
		_ = l.unname(l.ended) // or the name stays until this process ends
		l.ended = ""
	}
	return nil
}

// write makes the file say what it is, and which names it has. Nobody reads it before this process
// is dead, so after a write that was cut short nothing is proved, at worst.
func (l *Lifeline) write(names []string) error {
	content := fmt.Appendf(nil, "%s\nboot %s\nfile %d %d\npid %d\n", header, l.boot, l.id.dev, l.id.ino, os.Getpid())
	for _, n := range names {
		content = fmt.Appendf(content, "name %s\n", n)
	}
	if _, err := l.file.WriteAt(content, 0); err != nil {
		return err
	}
	return l.file.Truncate(int64(len(content)))
}

// End removes the name of a campaign that has ended in order and released its record. If it is the
// file's only name, the file keeps it until it has another, or until Close: a file that has lost
// all its names can get no new one from the kernel.
func (l *Lifeline) End(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.names, name) {
		return nil
	}
	if len(l.names) == 1 && l.isOpen() == nil {
		l.ended = name
		return nil
	}
	return l.unname(name)
}

// unname removes names of this process. If a name cannot be removed, for example because the
// process has become another user, the file's content no longer has that name. If that fails
// too, the name stays one of l.names.
func (l *Lifeline) unname(names ...string) error {
	var faults []error
	var left []string
	for _, n := range names {
		if err := l.unlink(n, l.id); err != nil {
			faults, left = append(faults, err), append(left, n)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(l.names), func(n string) bool { return slices.Contains(names, n) })
	if len(left) > 0 && (l.isOpen() != nil || l.write(rest) != nil) {
		rest = append(rest, left...)
	}
	l.names = rest
	return errors.Join(faults...)
}

// isOpen returns an error if the descriptor is no longer that of this process's file.
func (l *Lifeline) isOpen() error {
	if l.closed {
		return fmt.Errorf("lifeline: the lifeline in %s is closed", l.path)
	}
	if is, _, err := identify(int(l.file.Fd())); err != nil || is != l.id {
		return fmt.Errorf("lifeline: the descriptor of this process's file in %s is not open any more: something in this program closes descriptors that are not its own", l.path)
	}
	return nil
}

// Close ends the lifeline in order. It removes its names, closes its file and ends all watches.
// Call it when all campaigns of the process have stopped.
func (l *Lifeline) Close() error {
	l.watches.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	faults := []error{l.unname(l.names...)}
	if l.isOpen() == nil {
		faults = append(faults, l.file.Close())
	}
	l.closed = true
	if len(l.names) == 0 { // else the file stays locked until this process ends: unlocked, it would prove its death
		faults = append(faults, syscall.Munmap(l.mapped))
	}
	return errors.Join(append(faults, l.dir.Close())...)
}

// unlink removes the name if it stands for the given file.
func (l *Lifeline) unlink(name string, file id) error {
	fd, err := openat(int(l.dir.Fd()), name, openNameFlags, 0)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lifeline: looking at %s in %s: %w", name, l.path, err)
	}
	defer syscall.Close(fd)
	if is, _, err := identify(fd); err != nil || is != file {
		return err
	}
	if err := syscall.Unlinkat(int(l.dir.Fd()), name); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("lifeline: removing %s in %s: %w", name, l.path, err)
	}
	return nil
}

// Dead reports whether the death of the incarnation name is proved. That is so if its process is
// gone, and every process to which it has passed its file on. False proves nothing: the process
// may live, or may have lived on another machine.
func (l *Lifeline) Dead(name string) bool {
	dead := false
	l.prove(name, func(int) { dead = true })
	return dead
}

// Bury removes the name of an incarnation that is proved dead. Call it when the proof is needed
// no more, because the record is another's by then, or vacant. If the death is not proved, Bury
// does nothing.
func (l *Lifeline) Bury(name string) error {
	var err error
	l.prove(name, func(int) { err = syscall.Unlinkat(int(l.dir.Fd()), name) })
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("lifeline: removing %s in %s: %w", name, l.path, err)
	}
	return nil
}

// prove calls dead with the file of that name, locked, if its process is proved dead. The lock is
// shared, so that any number of processes can have the proof at once.
func (l *Lifeline) prove(name string, dead func(fd int)) {
	if checkName(name) != nil {
		return
	}
	fd, err := openat(int(l.dir.Fd()), name, openNameFlags, 0)
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	if flock(fd, syscall.LOCK_SH) != nil || lockOFD(fd, syscall.F_RDLCK) != nil {
		return
	}
	is, regular, err := identify(fd)
	if err != nil || !regular || !l.bears(fd, is, name) {
		return
	}
	if tested := whileLooking.Load(); tested != nil {
		(*tested)()
	}
	again, err := openat(int(l.dir.Fd()), name, openNameFlags, 0)
	if err != nil {
		return
	}
	defer syscall.Close(again)
	if now, _, err := identify(again); err == nil && now == is {
		dead(fd)
	}
}

// whileLooking lets tests do something between the two looks.
var whileLooking atomic.Pointer[func()]

// bears reports whether the file says that it is this file, of this boot, and has the name.
func (l *Lifeline) bears(fd int, is id, name string) bool {
	content, err := io.ReadAll(io.LimitReader(reader(fd), maxContent))
	if err != nil {
		return false
	}
	lines := bytes.Split(content, []byte("\n"))
	if len(lines) < 4 || string(lines[0]) != header || string(lines[1]) != "boot "+l.boot ||
		string(lines[2]) != "file "+strconv.FormatUint(is.dev, 10)+" "+strconv.FormatUint(is.ino, 10) {
		return false
	}
	for _, line := range lines[4:] {
		if string(line) == "name "+name {
			return true
		}
	}
	return false
}

// reader reads from a descriptor that it does not own.
type reader int

func (r reader) Read(p []byte) (n int, err error) {
	err = ignoringEINTR(func() error { n, err = syscall.Read(int(r), p); return err })
	if n <= 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}

// identify returns the file of a descriptor, and whether it is a regular file.
func identify(fd int) (is id, regular bool, err error) {
	var st syscall.Stat_t
	err = ignoringEINTR(func() error { return syscall.Fstat(fd, &st) })
	return id{uint64(st.Dev), st.Ino}, st.Mode&syscall.S_IFMT == syscall.S_IFREG, err
}

func flock(fd, how int) error {
	return ignoringEINTR(func() error { return syscall.Flock(fd, how|syscall.LOCK_NB) })
}

// lockOFD obtains a lock of the second kind, which belongs to one opening of a file.
func lockOFD(fd int, kind int16) error {
	return ignoringEINTR(func() error { return syscall.FcntlFlock(uintptr(fd), fOFDSetlk, &syscall.Flock_t{Type: kind}) })
}

func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = ignoringEINTR(func() error { fd, err = syscall.Openat(dir, name, flags|syscall.O_LARGEFILE, mode); return err })
	return fd, err
}

// link gives a name to a file that has none, by way of /proc.
func link(f *os.File, dir int, name string) error {
	from, err := syscall.BytePtrFromString("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	cwd := atFdcwd
	return ignoringEINTR(func() error {
		_, _, errno := syscall.Syscall6(syscall.SYS_LINKAT, uintptr(cwd), uintptr(unsafe.Pointer(from)), uintptr(dir), uintptr(unsafe.Pointer(to)), atFollow, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// maxName is the length of the longest name that is looked up. An incarnation has 26 characters.
const maxName = 128

// checkName returns an error if name is not a name that a campaign gives itself. It may come from
// a record of unknown origin.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("lifeline: a name has 1 to %d characters, not %d", maxName, len(name))
	}
	for _, r := range name {
		switch {
		case 'A' <= r && r <= 'Z', 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-', r == '_':
		default:
			return fmt.Errorf("lifeline: the name %q has other characters than letters, digits, - and _", name)
		}
	}
	return nil
}
