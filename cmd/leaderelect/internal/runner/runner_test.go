package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Whatever is asked for, a command is asked to end only after an extension was due
// and had an eighth of the view, and is killed before the view ends.
func TestTimesFit(t *testing.T) {
	for _, term := range []time.Duration{200 * time.Millisecond, time.Second, 15 * time.Second, time.Minute, time.Hour} {
		for _, skew := range []time.Duration{0, term / 100, term / 4, term / 2} {
			times, err := TimesFor(term, skew, 0)
			if err != nil {
				if term > time.Second {
					t.Errorf("%v, %v: %v", term, skew, err)
				}
				continue
			}
			span := term - skew
			if times.Span != span || times.Margin < 50*time.Millisecond || times.Grace <= 0 || times.Grace > 10*time.Second ||
				times.Grace+times.Margin > span*3/8 {
				t.Errorf("%v, %v: %+v", term, skew, times)
			}
			if _, err := TimesFor(term, skew, span/2); err == nil {
				t.Errorf("%v, %v: a grace of half the view is taken", term, skew)
			}
		}
	}
	if _, err := TimesFor(15*time.Second, time.Second, 4375*time.Millisecond); err != nil {
		t.Errorf("the greatest grace that errors name is refused: %v", err)
	}
	// What is advised must do.
	_, err := TimesFor(15*time.Second, time.Second, 30*time.Second)
	if err == nil || !strings.Contains(err.Error(), "or a --term of ") {
		t.Fatal(err)
	}
	advised, parse := time.ParseDuration(err.Error()[strings.LastIndex(err.Error(), " ")+1:])
	if parse != nil {
		t.Fatal(parse)
	}
	if _, err := TimesFor(advised, time.Second, 30*time.Second); err != nil {
		t.Error(err)
	}
}

const patience = 30 * time.Second

func TestExpiryFile(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	f := newExpiryFile("")
	end := time.Date(2026, 9, 21, 13, 46, 40, 123456789, time.UTC)
	for i := range 2 {
		must(t, f.begin(t.Context(), patience, end.Add(time.Duration(i)*time.Second)))
	}
	file := f.file
	if text, err := os.ReadFile(file); err != nil || string(text) != "1789998401\n2026-09-21T13:46:41.123456789Z\n" {
		t.Errorf("%q, %v", text, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("there are %v", left)
	}
	if err := f.remove(patience); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(file)); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
}

// In a directory of others the expiry file is written through no link that they have made, and replaces one
// that has its name; a directory in which all may replace files is refused.
func TestExpiryFileAmongOthers(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777|os.ModeSticky))
	victim, path := filepath.Join(t.TempDir(), "victim"), filepath.Join(dir, "expiry")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	for _, link := range []string{path, path + ".new"} {
		must(t, os.Symlink(victim, link))
	}
	f := newExpiryFile(path)
	if err := f.try(); err != nil {
		t.Error(err)
	}
	if err := f.begin(t.Context(), patience, time.Now()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the file of others has %q, %v", text, err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("the file is %v, %v", info, err)
	}
	must(t, os.Chmod(dir, 0o777))
	if err := f.try(); err == nil || !strings.Contains(err.Error(), "chmod +t") {
		t.Errorf("everybody may replace the file: %v", err)
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
