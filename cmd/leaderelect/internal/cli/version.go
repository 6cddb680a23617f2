package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

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
