package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shortest is from which length on a part of a secret is looked for also within
// words. What is shorter is taken out if it stands alone.
const shortest = 4

// takeOut is s without what v hides.
func (v *view) takeOut(s string) string {
	secret := make([]bool, len(s)) // of each byte
	for _, hidden := range v.hidden {
		for _, part := range parts(hidden) {
			for _, form := range escaped(part) {
				mark(secret, s, form)
			}
		}
	}
	var b strings.Builder
	for i := range s {
		switch {
		case !secret[i]:
			_, size := utf8.DecodeRuneInString(s[i:])
			b.WriteString(s[i : i+size])
		case i == 0 || !secret[i-1]:
			b.WriteString(Hidden)
		}
	}
	return b.String()
}

// mark marks where part is in s, also within words if it is not short.
func mark(secret []bool, s, part string) {
	for from := 0; part != ""; {
		i := strings.Index(s[from:], part)
		if i < 0 {
			return
		}
		start, end := from+i, from+i+len(part)
		before, _ := utf8.DecodeLastRuneInString(s[:start])
		after, _ := utf8.DecodeRuneInString(s[end:])
		alone := !inWord(after) && (!inWord(before) || start >= 3 && escape.MatchString(s[start-3:start]))
		if alone || len(part) >= shortest {
			for at := start; at < end; at++ {
				secret[at] = true
			}
		}
		from = start + 1
	}
}

func inWord(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

// parts are secret, also unescaped, and what an SDK may make of it that takes it for
// more than one thing.
func parts(secret string) []string {
	plain := escape.ReplaceAllStringFunc(secret, func(e string) string {
		b, err := strconv.ParseUint(e[1:], 16, 8)
		if err != nil {
			return e
		}
		return string([]byte{byte(b)})
	})
	all := []string{secret, plain, strings.ReplaceAll(plain, "+", " ")}
	for _, s := range slices.Clone(all) {
		all = append(all, strings.FieldsFunc(s, delimits)...)
		for i, b := range []byte(s) {
			if b == '%' { // as net/url shows an escape that is none
				all = append(all, s[i:min(i+3, len(s))])
			}
		}
	}
	return all
}

var escape = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// delimits reports whether an SDK that takes a URL apart may part a secret here.
func delimits(r rune) bool { return strings.ContainsRune(`:/?#@&=+%;,\"' `, r) }

// escaped are the ways in which an SDK may write s.
func escaped(s string) []string {
	quoted := strconv.Quote(s)
	user := url.UserPassword("", s).String()
	return []string{s, url.QueryEscape(s), url.PathEscape(s), user[1:], quoted[1 : len(quoted)-1]}
}
