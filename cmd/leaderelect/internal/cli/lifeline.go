package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/lifeline"
)

// lifelineDir is the setting of a command that has a lifeline: a directory, or one of these.
type lifelineDir string

const (
	lifelineAuto = "auto"
	lifelineNone = "none"
)

func (l *lifelineDir) flag(c *cobra.Command, about string) {
	c.Flags().StringVar((*string)(l), "lifeline", lifelineAuto, about+`. It is a directory in memory, the same for all candidates of this machine. "none" is without; "auto" is the first usable one of $RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR/leaderelection, /run/leaderelection and /dev/shm/leaderelection-UID (Linux)`)
	_ = c.MarkFlagDirname("lifeline") // for completion; the flag is there
}

// lifelineDirs are the directories to try, the best first.
func lifelineDirs() (all []string) {
	if first, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":"); first != "" {
		all = append(all, first)
	}
	if xdg := os.Getenv("XDG_RUNTIME_DIR"); xdg != "" {
		all = append(all, filepath.Join(xdg, "leaderelection"))
	}
	return append(all, "/run/leaderelection", fmt.Sprintf("/dev/shm/leaderelection-%d", os.Geteuid()))
}

// open returns the lifeline, or nil if there is to be none. With auto an error says why no directory
// fits; else it is one of usage.
func (l lifelineDir) open() (*lifeline.Lifeline, error) {
	switch l {
	case lifelineNone:
		return nil, nil //nolint:nilnil // there is none
	case lifelineAuto:
	default:
		line, err := lifeline.Dir(string(l))
		if err != nil {
			return nil, usage("--lifeline: %w", err)
		}
		return line, nil
	}
	var faults []error
	for _, dir := range lifelineDirs() {
		line, err := lifeline.Dir(dir)
		if err == nil {
			return line, nil
		}
		faults = append(faults, err)
	}
	return nil, errors.Join(faults...)
}

// forCandidate is open for a candidate, which does without if no directory fits. The processes
// that it starts from now on have the lifeline, too: so its death is proved when all are gone.
func (l lifelineDir) forCandidate(a *app) (*lifeline.Lifeline, error) {
	line, err := l.open()
	switch _, wrong := errors.AsType[*exit](err); {
	case wrong:
		return nil, err
	case err == nil && line != nil:
		if err = proc.PassOn(line.File()); err == nil {
			return line, nil
		}
		_ = line.Close()
	}
	if err != nil {
		a.logger().Debug("no lifeline: if this process is killed, others wait for its term", "err", err)
	}
	return nil, nil //nolint:nilnil // it does without
}

// finding says which directory open takes, or why there is none and what to set.
func (l lifelineDir) finding() doctor.Finding {
	const check = "the lifeline"
	line, err := l.open()
	switch _, wrong := errors.AsType[*exit](err); {
	case wrong:
		return doctor.Finding{Check: check, Verdict: doctor.Fail, Detail: err.Error(), Advice: "run and shards run do not start with this setting; without it they take a directory themselves"}
	case err != nil && runtime.GOOS != "linux":
		return doctor.Finding{Check: check, Verdict: doctor.Skip, Detail: "none: lifelines need Linux", Advice: "after a leader is killed, the others wait for its term"}
	case err != nil:
		return doctor.Finding{Check: check, Verdict: doctor.Warn, Detail: "none: after a leader is killed, the others wait for its term\n" + err.Error(),
			Advice: "make a directory in memory that belongs to this user, and set --lifeline to it for all candidates of this machine"}
	case line == nil:
		return doctor.Finding{Check: check, Verdict: doctor.OK, Detail: "none, as --lifeline says: after a leader is killed, the others wait for its term"}
	}
	defer line.Close()
	return doctor.Finding{Check: check, Verdict: doctor.OK, Detail: fmt.Sprintf("%s, as user %d: candidates of this machine with the same directory need not wait for the term of a dead process", line, os.Geteuid())}
}
