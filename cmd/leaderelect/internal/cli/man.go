package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the manual pages, made of the commands themselves.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages into a directory",
		Long: `Write a manual page for each command, made of its own help:

    leaderelect man /usr/local/share/man/man1`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a.begun(exitError)
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("making the directory of the manual pages: %w", err)
			}
			c.Root().DisableAutoGenTag = true // which says which program made the page, and when
			header := &doc.GenManHeader{Section: "1", Source: "leaderelect " + buildVersion(), Manual: "User Commands"}
			if err := doc.GenManTree(c.Root(), header, args[0]); err != nil {
				return fmt.Errorf("writing the manual pages: %w", err)
			}
			return nil
		},
	}
}
