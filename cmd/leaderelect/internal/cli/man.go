package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the manual pages, made of the commands themselves.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages into a directory",
		Long: `Write a manual page for each command, made from its help:

    leaderelect man /usr/local/share/man/man1`,
		Args: cobra.ExactArgs(1),
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
