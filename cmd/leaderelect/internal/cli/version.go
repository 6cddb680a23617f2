package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version may be set by the linker: -ldflags "-X .../internal/cli.version=v1.2.3".
var version = ""

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a.begun(exitError)
			_, err := fmt.Fprint(a.out, versionLine())
			return err
		},
	}
}

// versionLine is what version prints.
func versionLine() string {
	return fmt.Sprintf("leaderelect %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// buildVersion is what the linker, the module or the checkout says.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case version != "":
		return version
	case ok && info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	case ok:
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return "devel " + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "devel"
}
