package lifeline

import (
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/rules/mutants"
)

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
