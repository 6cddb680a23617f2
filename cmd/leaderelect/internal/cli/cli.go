// Package cli is the command line of leaderelect: its commands, flags, settings
// and exit codes.
package cli

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// Exit codes that commands share. What else a command may exit with, its help says.
const (
	exitError = 1
	exitUsage = 2
)

// exit is an error that decides the exit code. One with a nil err is silent.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exit{exitUsage, fmt.Errorf(format, args...)}
}

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	if len(args) > 0 && args[0] == proc.GuardCommand {
		return proc.Guard()
	}
	return run(context.Background(), args, os.Stdin, os.Stdout, os.Stderr)
}

// run is Main with its surroundings given.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out, errOut: errOut}
	a.keepSecret(args)
	root := a.root()
	root.SetArgs(args)
	return a.execute(ctx, root)
}

// execute runs a command line, and says what went wrong.
func (a *app) execute(ctx context.Context, root *cobra.Command) int {
	defer func() { a.log().Flush(a.ending()) }()
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.log())
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	switch e, decided := errors.AsType[*exit](err); {
	case decided:
		if e.err != nil {
			a.complain("%v", e.err)
		}
		return e.code
	case !a.started || store.Wrong(err) || errors.Is(err, leaderelection.ErrConfig):
		try := "leaderelect help"
		if c != root {
			try += strings.TrimPrefix(c.CommandPath(), root.Name())
		}
		a.complain("%v\nTry: %s", err, try)
		return exitUsage
	}
	a.complain("%v", err)
	return a.failure
}

// app is one run of the program.
type app struct {
	in          io.Reader
	out, errOut io.Writer // the log has another way to errOut

	logs       sync.Once
	lines      *outbox.Log
	journalled bool          // errOut is systemd's journal
	patience   time.Duration // see ending; 0: flushPatience
	endBy      time.Time

	common  common
	started bool     // the arguments were right: what fails now is not a usage error
	failure int      // the exit code of an error that names none
	urls    []string // those given, whose secrets are not told
}

func (a *app) root() *cobra.Command {
	list := func(forms []string) (s string) {
		for _, f := range forms {
			s += "    " + f + "\n"
		}
		return s
	}
	root := &cobra.Command{
		Use:           "leaderelect",
		Short:         "Elect one of many processes as the leader",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       buildVersion(),
		Args:          noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			return usage("no command given; leaderelect help lists them")
		},
		PersistentPreRunE:          func(c *cobra.Command, _ []string) error { return a.settle(c) },
		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate(versionLine())
	a.common.flags(root.PersistentFlags())
	choices(root, "log-format", "text", "json")
	choices(root, "clocks", trusts...)
	choices(root, "log-level", "debug", "info", "warn", "error")
	root.AddCommand(a.runCommand(), a.holdCommand(), a.hookCommand(), a.sidecarCommand(), a.planCommand(), a.doctorCommand(), a.shardsCommand(), a.manCommand(), a.watchCommand(), a.statusCommand(), a.waitCommand(), a.transferCommand(), a.stepdownCommand(), a.resetCommand())
	explain(root)
	root.Long = fmt.Sprintf(root.Long, list(store.Forms), list(store.TLS))
	root.SetHelpCommand(a.helpCommand())
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		describe(c, func() { help(c, args) })
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", columns)))
	return root
}

// noSuchCommand wants no arguments: what is none of the commands may be a mistyped
// one.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	s := fmt.Sprintf("there is no command %q", args[0])
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		s += "; did you mean " + strings.Join(near, ", or ") + "?"
	}
	return errors.New(s)
}

// choices completes the values of a flag.
func choices(c *cobra.Command, flag string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag
	}
}

// begun notes that a command's arguments were right, and the exit code of what
// fails from now on.
func (a *app) begun(failure int) { a.started, a.failure = true, failure }

// version may be set by the linker: -ldflags "-X .../internal/cli.version=v1.2.3".
var version = ""

// versionLine is what --version prints.
func versionLine() string {
	commit := ""
	if c := builtFrom(); c != "" {
		commit = "commit " + c + ", "
	}
	return fmt.Sprintf("leaderelect %s (%s%s, %s/%s)\n", buildVersion(), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// buildVersion is what the linker or the module says.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// builtFrom is the commit of the checkout that this program was built from; empty if it was
// built from none, as by go install, whose versions name it.
func builtFrom() (commit string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return commitOf(info.Settings)
}

func commitOf(settings []debug.BuildSetting) (commit string) {
	modified := ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " with changes"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + modified
}

// commands are what signals reach.
type commands interface {
	Signal(syscall.Signal) // passes it on
	StopBy(syscall.Signal) // sets by which one they will be asked to end
	Kill()
}

// signals has signals end the program by cancel, or reach the command of r, which
// may be nil. It returns how to stop that.
func (a *app) signals(cancel context.CancelCauseFunc, r commands) (stop func()) {
	return a.signalsTo(cancel, r, func() {
		if r != nil {
			r.Kill()
		}
	})
}

// signalled is the cause of an end that a signal asked for.
type signalled struct{ signal syscall.Signal }

func (s *signalled) Error() string {
	return fmt.Sprintf("%v by a signal: %v", runner.ErrStopped, s.signal)
}
func (s *signalled) Unwrap() error { return runner.ErrStopped }

// Other causes of an end.
var (
	errNoReader = fmt.Errorf("%w: nobody reads on", runner.ErrStopped) // the reader of the output has closed it
	errFinished = errors.New("the command has ended")                  // for good
	errTimeout  = errors.New("--timeout is over")
	errHappened = errors.New("it has happened")
)

// ended is nil if somebody asked for the end.
func ended(err error) error {
	if errors.Is(err, runner.ErrStopped) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// late says why ctx has ended, if that is why err is.
func late(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// helpText has what help says of each command.
//
//go:embed help.txt
var helpText string

// explain gives c, and the commands below it, their sections of helpText.
func explain(c *cobra.Command) {
	for section := range strings.SplitSeq(helpText, "\n== ") {
		title, text, _ := strings.Cut(strings.TrimSuffix(section, "\n"), "\n")
		switch title {
		case c.CommandPath():
			c.Long = text
		case c.CommandPath() + " examples":
			c.Example = text
		}
	}
	for _, sub := range c.Commands() {
		explain(sub)
	}
}

// helpCommand is as cobra's own, but fails if there is no such command.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show how to use a command",
		// Help needs no settings, which may be what help is needed with.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		ValidArgsFunction: func(c *cobra.Command, _ []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			for _, sub := range c.Root().Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			if err == nil {
				err = noSuchCommand(c.Root(), rest)
			}
			if err != nil {
				return usage("%w", err)
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

// reads reports whether a command reads a setting that all of them accept, since one file
// of settings is for all. Candidates read each.
func reads(command, setting string) bool {
	follower := []string{"skew", "clocks", "poll", "log-format", "log-level", "config"}
	switch command {
	case "leaderelect", "run", "hold", "hook", "sidecar":
		return true
	case "watch", "status":
		return slices.Contains(append(follower, "extend-every"), setting)
	case "wait", "transfer", "stepdown", "move", "drain":
		return slices.Contains(follower, setting)
	case "doctor":
		return slices.Contains(append(follower, "term"), setting)
	case "plan":
		return slices.Contains([]string{"term", "skew", "clocks", "poll", "config", "extend-every"}, setting)
	case "reset", "unpin", "undrain":
		return slices.Contains(follower[3:], setting)
	}
	return false
}

// ofElections reports whether a setting means nothing to a command, since that is about a
// group of shards.
func ofElections(c *cobra.Command, setting string) bool {
	return c.HasParent() && c.Parent().Name() == "shards" && slices.Contains([]string{"priority", "extend-every", "params"}, setting)
}

// describe calls tell with what a command does not read left out of its help.
func describe(c *cobra.Command, tell func()) {
	var hidden []*pflag.Flag
	c.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && (!reads(c.Name(), f.Name) || ofElections(c, f.Name)) {
			f.Hidden = true
			hidden = append(hidden, f)
		}
	})
	tell()
	for _, f := range hidden {
		f.Hidden = false
	}
}

// columns is how wide help is.
const columns = 80

// manCommand writes the manual pages, made of the commands themselves.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages into a directory",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a.begun(exitError)
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("making the directory of the manual pages: %w", err)
			}
			c.Root().DisableAutoGenTag = true // which says which program made the page, and when
			header := &doc.GenManHeader{Section: "1", Source: "leaderelect " + buildVersion(), Manual: "User Commands"}
			if err := manPages(c.Root(), *header, args[0]); err != nil {
				return fmt.Errorf("writing the manual pages: %w", err)
			}
			return nil
		},
	}
}

// manPages writes those of c and of the commands below it.
func manPages(c *cobra.Command, header doc.GenManHeader, directory string) (err error) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			err = errors.Join(err, manPages(sub, header, directory))
		}
	}
	var page bytes.Buffer
	describe(c, func() { err = errors.Join(err, doc.GenMan(c, &header, &page)) })
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(c.CommandPath(), " ", "-") + "." + header.Section
	return os.WriteFile(filepath.Join(directory, name), page.Bytes(), 0o644)
}
