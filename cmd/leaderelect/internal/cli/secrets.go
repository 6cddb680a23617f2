package cli

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/internal/redact"
)

// keepSecret notes the URLs among the arguments up to "--", and in the environment:
// what is said from now on shows none of their secrets.
func (a *app) keepSecret(args []string) {
	for _, arg := range append([]string{os.Getenv(envPrefix + "STORE")}, args...) {
		if arg == "--" {
			return
		}
		if name, value, found := strings.Cut(arg, "="); found && strings.HasPrefix(name, "-") {
			arg = value
		}
		if seemsURL(arg) {
			a.urls = append(a.urls, arg)
		}
	}
}

// seemsURL reports whether arg is a URL, or looks as if its writer forgot the scheme.
func seemsURL(arg string) bool {
	user, _, at := strings.Cut(arg, "@")
	return strings.Contains(arg, "://") || at && strings.Contains(user, ":")
}

// fit is s as it may be printed: without secrets, and without what a terminal would
// take for commands.
func (a *app) fit(s string) string { return state.Printable(redact.Text(s, a.urls...)) }

// complain prints an error.
func (a *app) complain(format string, args ...any) {
	fmt.Fprintf(a.errOut, "leaderelect: %s\n", a.fit(fmt.Sprintf(format, args...)))
}

// attr is at as it may be logged. The handlers escape what is no text.
func (a *app) attr(_ []string, at slog.Attr) slog.Attr {
	var s string
	switch v := at.Value.Any().(type) {
	case string:
		s = v
	case error:
		s = v.Error()
	case fmt.Stringer:
		s = v.String()
	default:
		return at
	}
	if hidden := redact.Text(s, a.urls...); hidden != s {
		return slog.String(at.Key, hidden)
	}
	return at
}
