package cli

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
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

// warnOfReaders warns of a file with a secret that every user of this machine may read.
func (a *app) warnOfReaders(flag, path string) {
	info, err := os.Stat(path)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0 { // Windows has no such bit
		a.logger().Warn("every user of this machine may read this file, which has a secret: chmod o-r it", "flag", flag, "file", path)
	}
}

// seemsURL reports whether arg is a URL, or looks as if its writer forgot the scheme.
func seemsURL(arg string) bool {
	user, _, at := strings.Cut(arg, "@")
	return strings.Contains(arg, "://") || at && strings.Contains(user, ":")
}

// fit is s as it may be printed: without secrets, without what a terminal would
// take for commands, and with a URL's parameters alone for what Go programs set otherwise.
func (a *app) fit(s string) string {
	return state.Printable(atTheCommandLine(redact.Text(s, a.urls...)))
}

// Advice of a store names a Go program's option and the URL's parameter, in one of two forms:
// "set Options.Create (create=true in an address)" and "wait_replicas=2 (Options.WaitReplicas)".
// They are compiled when there is something to say.
var (
	optionFirst = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?:let )?(?:\w+\.)?(?:Options|TLSConfig)\.\w+(?: do so)? \((\w+=\w+|\w+)(?: in an address| in a URL)?\)`)
	})
	optionAfter = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?: in a URL, | \()(?:\w+\.)?(?:Options|TLSConfig)\.\w+\)`)
	})
)

// atTheCommandLine is advice without the names of a Go program's options.
func atTheCommandLine(s string) string {
	s = optionFirst().ReplaceAllString(s, "$1 in the URL")
	return optionAfter().ReplaceAllStringFunc(s, func(m string) string {
		if strings.HasPrefix(m, " in a URL") {
			return " in the URL)"
		}
		return ""
	})
}

// complain prints an error.
func (a *app) complain(format string, args ...any) {
	out := a.log()
	prefix := ""
	if a.journalled {
		prefix = priorityError
	}
	fmt.Fprintf(out, "%sleaderelect: %s\n", prefix, a.fit(fmt.Sprintf(format, args...)))
}

// withoutSchema is an error without the statement that makes a table, which its advice ends with: that is
// printed once, when this program ends by the error, and not in each line of the log before.
func withoutSchema(s string) string {
	before, statement, found := strings.Cut(s, ":\nCREATE ")
	if !found {
		return s
	}
	_, after, _ := strings.Cut(statement, "\n)")
	_, after, _ = strings.Cut(after, "\n") // what follows the parenthesis
	if after = strings.TrimSpace(after); after != "" {
		before += "\n" + after
	}
	return before
}

// attr is at as it may be logged. JSON has a span of time in seconds, as that of all commands. The handlers escape what is not text.
func (a *app) attr(_ []string, at slog.Attr) slog.Attr {
	var s string
	if d := at.Value; d.Kind() == slog.KindDuration && a.common.logFormat == "json" {
		return slog.Float64(at.Key, d.Duration().Seconds())
	}
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
	if hidden := withoutSchema(atTheCommandLine(redact.Text(s, a.urls...))); hidden != s {
		return slog.String(at.Key, hidden)
	}
	return at
}
