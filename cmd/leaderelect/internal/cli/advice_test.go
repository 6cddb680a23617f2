package cli

import (
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
)

// Advice names what can be written at the command line.
func TestAdviceNamesParameters(t *testing.T) {
	for from, want := range map[string]string{
		"create it, or set Options.CreateDir (create=true in an address)":                         "create it, or set create=true in the URL",
		"sqlite.Options.Create (create=true in an address) makes the file":                        "create=true in the URL makes the file",
		"create it (nats kv add BUCKET), or let Options.Create do so (create=true in an address)": "create it (nats kv add BUCKET), or create=true in the URL",
		"give Options.Listen a direct connection to it (listen_url in an address)":                "give Options.Listen a direct connection to it (listen_url in an address)",
		"set Options.NoListen (listen=false)":                                                     "set listen=false in the URL",
		"set wait_replicas=2 (Options.WaitReplicas) for all candidates":                           "set wait_replicas=2 for all candidates",
		"trust the authority (cacert in a URL, TLSConfig.RootCAs), and connect by a name":         "trust the authority (cacert in the URL), and connect by a name",
		"nothing of the kind (as here)":                                                           "nothing of the kind (as here)",
	} {
		if got := atTheCommandLine(from); got != want {
			t.Errorf("%q: %q, want %q", from, got, want)
		}
	}
}

// The version names the commit, and whether there is more than that in it.
func TestCommitOf(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for want, s := range map[string][]debug.BuildSetting{
		"":                          nil,
		"0123456789ab":              {setting("vcs.revision", "0123456789abcdef"), setting("vcs.modified", "false")},
		"0123456789ab with changes": {setting("vcs.modified", "true"), setting("vcs.revision", "0123456789abcdef")},
	} {
		if got := commitOf(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Help fits into 80 columns, but for what has no blanks to break it at.
func TestHelpFits(t *testing.T) {
	commands := []*cobra.Command{(&app{}).root()}
	for i := 0; i < len(commands); i++ { // with those below each
		commands = append(commands, commands[i].Commands()...)
		command := commands[i].CommandPath()
		code, out, errOut := says(t, append([]string{"help"}, strings.Fields(command)[1:]...)...)
		if code != 0 || len(out) < 20 {
			t.Errorf("%s: %d %s", command, code, errOut)
		}
		for line := range strings.Lines(out) {
			if line = strings.TrimRight(line, "\n"); len([]rune(line)) > 80 && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s: %d columns: %s", command, len([]rune(line)), line)
			}
		}
	}
}

// A wrong parameter of a URL is a wrong command line, as a wrong scheme is: no restart helps. A store
// that refuses is not.
func TestWrongParametersAreUsage(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2")
	for url, want := range map[string]int{
		"redis://127.0.0.1:1/0?key=a&wait_replicas=many":      exitUsage,
		"redis://127.0.0.1:1/0?key=a&nonsense=1":              exitUsage,
		"postgres://127.0.0.1:1/db?election=a&create=perhaps": exitUsage,
		"nosuch://x":                   exitUsage,
		"s3:/bad":                      exitUsage,
		"s3://bucket":                  exitUsage,
		"gs://bucket":                  exitUsage,
		"dynamodb://table":             exitUsage,
		"file:///no/such/dir/and/file": proc.CodeFailed,
	} {
		code, _, errOut := says(t, "hook", "--end-at-start=false", "--begin", "true", "--end", "true", url)
		if code != want {
			t.Errorf("%s: exit code %d, want %d: %s", url, code, want, errOut)
		}
	}
}

// So is a value of a flag that no candidate can have.
func TestWrongValuesAreUsage(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2")
	store := "file://" + filepath.Join(t.TempDir(), "e.json")
	for _, args := range [][]string{
		{"hook", "--end-at-start=false", "--begin", "true", "--end", "true", "--id", "\xff", store},
		{"hook", "--end-at-start=false", "--begin", "true", "--end", "true", "--term", "9000h", store},
		{"sidecar", "--listen", "127.0.0.1:99999", store},
	} {
		if code, _, errOut := says(t, args...); code != exitUsage {
			t.Errorf("%q: exit code %d: %s", args, code, errOut)
		}
	}
}
