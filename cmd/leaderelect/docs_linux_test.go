package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/pages"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// The pages of docs are followed as they stand, one after the other: what their blocks of sh
// print is what they say. A block below the name of a program's directory is run by that program's tests.
func TestDocs(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	all, err := pages.All(stores.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	ran, fired := 0, 0
	for page, text := range all {
		blocks, err := pages.Blocks(page, text)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(blocks, func(b pages.Block) bool { return b.Lang == "sh" && b.Note == "" }) {
			ran++
			t.Run(page, func(t *testing.T) {
				t.Parallel()
				followPage(t, blocks)
			})
		}
		for _, b := range blocks {
			if b.Lang != "crontab" {
				continue
			}
			for line := range strings.Lines(b.Text) {
				fields := strings.SplitN(strings.TrimSpace(line), " ", 6)
				if len(fields) < 6 {
					t.Fatalf("%v: no line of a crontab: %s", b, line)
				}
				fired++
				t.Run(b.String(), func(t *testing.T) {
					t.Parallel()
					testCrontab(t, fields[5])
				})
			}
		}
	}
	if ran < 2 || fired < 1 {
		t.Errorf("%d pages are run, and %d lines of crontabs: are they still found?", ran, fired)
	}
}

// followPage runs all blocks of sh in one shell, and compares what each printed with the block
// of text after it.
func followPage(t *testing.T, blocks []pages.Block) {
	if slices.ContainsFunc(blocks, func(b pages.Block) bool { return b.Lang == "sh" && strings.Contains(b.Text, "curl") }) {
		stores.Need(t, "curl")
	}
	const end = "the end of a block"
	var script strings.Builder
	for _, b := range blocks {
		if b.Lang == "sh" {
			script.WriteString(b.Text + "\necho '" + end + "'\n")
		}
	}
	ports := pages.Ports{}
	here := func(text string) string {
		t.Helper()
		text, err := ports.Here(text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	// Long enough for a busy machine: none of these waits for a term to end.
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", here(script.String()))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PWD="+cmd.Dir, "TMPDIR="+cmd.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v, %v:\n%s", err, context.Cause(ctx), out)
	}
	printed := strings.Split(string(out), end+"\n")
	n := -1
	for i, b := range blocks {
		if b.Lang != "sh" {
			continue
		}
		n++
		want := ""
		if i+1 < len(blocks) && blocks[i+1].Lang == "text" {
			want = here(blocks[i+1].Text)
		}
		if err := pages.Prints(want, printed[n]); err != nil {
			t.Errorf("%v: %v", b, err)
		}
	}
}

var (
	flagOf   = regexp.MustCompile(`--([a-z][a-z-]+)`)
	toldFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)
	verbOf   = regexp.MustCompile(`(?m)\bleaderelect (shards )?([a-z]+)\b`)
	settings = regexp.MustCompile(`\bLEADERELECT_[A-Z_]+\b`)
)

// The flags, the commands and the variables of which the pages tell are there.
func TestDocsFlags(t *testing.T) {
	t.Parallel()
	help := func(words ...string) string {
		out, err := exec.Command("leaderelect", append([]string{"help"}, words...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("help %q: %v\n%s", words, err, out)
		}
		return string(out)
	}
	verbs := map[string]string{} // and what is said of each
	listed := func(text string) (names []string) {
		_, list, _ := strings.Cut(text, "Available Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for line := range strings.Lines(list) {
			names = append(names, strings.Fields(line)[0])
		}
		return names
	}
	for _, verb := range listed(help()) {
		verbs[verb] = help(verb)
	}
	for _, verb := range listed(verbs["shards"]) {
		verbs["shards "+verb] = help("shards", verb)
	}
	flags := map[string]bool{"help": true}
	said := ""
	for _, text := range verbs {
		said += text
		for _, m := range toldFlag.FindAllStringSubmatch(text, -1) {
			flags[m[1]] = true
		}
	}
	ours := ownPages(t)
	all, err := pages.All(stores.Root(t))
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for page, text := range all {
		for _, m := range flagOf.FindAllStringSubmatch(text, -1) {
			if counted++; !flags[m[1]] {
				t.Errorf("docs/%s: leaderelect has no --%s", page, m[1])
			}
		}
		for _, m := range verbOf.FindAllStringSubmatch(text, -1) {
			if counted++; verbs[m[1]+m[2]] == "" {
				t.Errorf("docs/%s: there is no leaderelect %s%s", page, m[1], m[2])
			}
		}
		for _, name := range settings.FindAllString(text, -1) {
			flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "LEADERELECT_")), "_", "-")
			if counted++; !flags[flag] && !strings.Contains(said+ours, name) {
				t.Errorf("docs/%s: leaderelect knows no %s", page, name)
			}
		}
	}
	if counted < 40 {
		t.Errorf("%d flags, commands and variables on all pages: are they still found?", counted)
	}
}
