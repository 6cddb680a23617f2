package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand prints the manual page, made of the commands themselves.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man",
		Short: "Print the manual page, as roff",
		Long: `Print this manual page, made of the commands' own help:

    leaderelect man >/usr/local/share/man/man1/leaderelect.1`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a.begun(exitError)
			m := &manual{out: a.out}
			m.page(c.Root())
			return m.err
		},
	}
}

// manual writes roff.
type manual struct {
	out io.Writer
	err error
}

func (m *manual) line(format string, args ...any) {
	if m.err == nil {
		_, m.err = fmt.Fprintf(m.out, format+"\n", args...)
	}
}

// escape keeps text from being taken for roff.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

func (m *manual) page(root *cobra.Command) {
	m.line(`.TH LEADERELECT 1 "" "leaderelect %s" "User Commands"`, escape(buildVersion()))
	m.line(".SH NAME\nleaderelect \\- %s", escape(strings.ToLower(root.Short[:1])+root.Short[1:]))
	m.line(".SH SYNOPSIS")
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			m.line(".B leaderelect %s\n.br", escape(c.Use))
		}
	}
	m.line(".SH DESCRIPTION")
	m.text(root.Long)
	m.line(".SH COMMANDS")
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion" {
			m.command(c)
		}
	}
	m.line(".SH COMMON OPTIONS")
	m.flags(root.PersistentFlags())
	m.line(".SH ENVIRONMENT\nEach option is read from a variable of its name with LEADERELECT_ before it, in capitals, with _ for \\-; the URL from LEADERELECT_STORE.")
	m.line(".SH EXIT STATUS\n0 success; 1 failure; 2 wrong usage. What else a command exits with, it says above.")
}

func (m *manual) command(c *cobra.Command) {
	m.line(".SS leaderelect %s", escape(c.Use))
	if c.Long != "" {
		m.text(c.Long)
	} else {
		m.text(c.Short + ".")
	}
	if c.Example != "" {
		m.line(".PP\nExamples:\n.PP\n.nf")
		for line := range strings.Lines(c.Example) {
			m.line("%s", escape(strings.TrimRight(line, "\n")))
		}
		m.line(".fi")
	}
	m.flags(c.LocalNonPersistentFlags())
}

// text writes paragraphs, and what is indented as it stands.
func (m *manual) text(s string) {
	verbatim := false
	m.line(".PP")
	for line := range strings.SplitSeq(s, "\n") {
		switch indented := strings.HasPrefix(line, "    "); {
		case line == "":
			if !verbatim {
				m.line(".PP")
			}
			continue
		case indented && !verbatim:
			m.line(".RS\n.nf")
			verbatim = true
		case !indented && verbatim:
			m.line(".fi\n.RE\n.PP")
			verbatim = false
		}
		m.line("%s", escape(strings.TrimPrefix(line, "    ")))
	}
	if verbatim {
		m.line(".fi\n.RE")
	}
}

func (m *manual) flags(f *pflag.FlagSet) {
	f.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		kind, help := pflag.UnquoteUsage(f)
		m.line(".TP\n.B \\-\\-%s%s", escape(f.Name), escape(strings.TrimRight(" "+kind, " ")))
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "false" && f.DefValue != "[]" {
			help += " (default " + f.DefValue + ")"
		}
		m.line("%s", escape(help))
	})
}
