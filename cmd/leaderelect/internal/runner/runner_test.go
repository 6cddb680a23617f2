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

func TestExpiryFile(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	f, err := newExpiryFile("")
	if err != nil {
		t.Fatal(err)
	}
	end := time.Date(2026, 9, 21, 13, 46, 40, 123456789, time.UTC)
	for i := range 2 {
		if err := f.write(end.Add(time.Duration(i) * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(f.path); err != nil || string(text) != "1789998401\n2026-09-21T13:46:41.123456789Z\n" {
		t.Errorf("%q, %v", text, err)
	}
	if left, _ := filepath.Glob(f.path + "*"); len(left) != 1 {
		t.Errorf("there are %q", left)
	}
	f.remove()
	if _, err := os.Stat(filepath.Dir(f.path)); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
}
