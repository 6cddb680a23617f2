package cli

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

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

// fold breaks the lines of each paragraph again. What is indented stays as it is.
func fold(text string) string {
	var out, paragraph []string
	flush := func() {
		line := ""
		for _, word := range paragraph {
			if line != "" && len([]rune(line))+1+len([]rune(word)) > columns {
				out, line = append(out, line), ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		if line != "" {
			out = append(out, line)
		}
		paragraph = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || strings.HasPrefix(line, " ") {
			flush()
			out = append(out, line)
			continue
		}
		paragraph = append(paragraph, strings.Fields(line)...)
	}
	flush()
	return strings.Join(out, "\n")
}

// folded calls tell with a command's help within the columns.
func folded(c *cobra.Command, tell func()) {
	long := c.Long
	defer func() { c.Long = long }()
	c.Long = fold(long)
	tell()
}

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
