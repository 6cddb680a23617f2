package state

import (
	"strconv"
	"strings"
	"unicode"
)

// Name is a leader's name, an address, or any other text of a record, as it may be
// shown in a line: quoted if it has what a terminal would take for commands, or what
// would make other lines of it.
func Name(s string) string {
	for _, r := range s {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return strconv.Quote(s)
		}
	}
	if strings.TrimSpace(s) != s || strings.HasPrefix(s, `"`) {
		return strconv.Quote(s)
	}
	return s
}

// Names are several, in a line.
func Names(all []string) string {
	shown := make([]string, len(all))
	for i, s := range all {
		shown[i] = Name(s)
	}
	return strings.Join(shown, " ")
}

// Printable is s, which may have several lines, with what a terminal would take for
// commands escaped.
func Printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
