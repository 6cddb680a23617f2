// Package redact keeps secrets out of messages. All stores' Open functions and the
// command line use it wherever a message shows a URL, or the error of an SDK that
// was given one.
//
// It errs on the side of hiding. What is shown of a URL is its scheme, its host and
// path, and the parameters that are known to be harmless. A URL may hold an @ where
// nobody can tell whether a password with a slash, a # or a ? came before it: of such
// a one only the scheme is shown.
package redact

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden stands for what is not shown.
const Hidden = "xxxxx"

// ErrUnreadable is what a URL that cannot be parsed is refused with. What net/url
// says repeats parts of it, which may be parts of a password.
var ErrUnreadable = errors.New("it cannot be read as a URL: a port is a number, and in user names, passwords and names write / as %2F, # as %23, ? as %3F, @ as %40 and % as %25")

// URL is raw without what may be secret.
func URL(raw string) string { return look(raw).shown }

// Text is s without the secrets of the URLs that it has, and without whatever is
// hidden of the URLs raws, in any form in which an SDK may repeat it.
func Text(s string, raws ...string) string {
	for _, raw := range raws {
		s = look(raw).takeOut(s)
	}
	return inText.ReplaceAllStringFunc(s, func(found string) string {
		u := strings.TrimRight(found, ".,:;)]}")
		return URL(u) + found[len(u):]
	})
}

// inText finds URLs in a text. A quote or a space ends one.
var inText = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s\"'`<>]+")

// Error is err with Text applied to its message. errors.Is and errors.As find what
// err wraps. It is nil if err is.
func Error(err error, raws ...string) error {
	if err == nil {
		return nil
	}
	return &redacted{err, raws}
}

type redacted struct {
	err  error
	raws []string
}

func (r *redacted) Error() string { return Text(r.err.Error(), r.raws...) }
func (r *redacted) Unwrap() error { return r.err }

// ours are the parameters of stores' URLs whose values are shown: they name an
// election, or say how the store is used.
var ours = set(`parameter key election table create replicas storage domain channel mode allow_network region profile path_style
	native_lease companion create_companions encryption_scope anonymous kms_key
	acl sse sse_kms_key_id bucket bucket_owner checksum opaque_etags unquoted_etag verify partition_key sort_key sort_value
	feed_grace feed_silence feed_wait server_name cluster master_name wait_replicas wait_timeout listen linearizable
	announcements timeout discover tls sslmode tls_ca tls_cert
	datacenter namespace partition token_file context kubeconfig creds nkey tls_key passfile service servicefile inbox_prefix description
	pool_max_conns pool_min_conns connect_timeout channel_binding application_name target_session_attrs search_path
	socket busy_timeout session_timeout replicaSet authSource authMechanism directConnection appName retryReads retryWrites maxPoolSize minPoolSize`)

// theirs are those of the requests that SDKs make over HTTP.
var theirs = set("alt prettyPrint projection uploadType name generation ifGenerationMatch ifMetagenerationMatch x-id comp restype versionid")

// harmless reports whether the value of a parameter is shown.
func harmless(scheme, name string) bool {
	if scheme == "http" || scheme == "https" {
		return theirs[name] // a key is the key to something there
	}
	return ours[name]
}

// addresses are the parameters whose values are themselves addresses.
var addresses = set("endpoint addr server listen_url")

// known are the schemes of stores.
var known = set("file gs s3 azblob dynamodb nats etcd etcds redis rediss redis+unix postgres postgresql mongodb mongodb+srv rethinkdb mysql mariadb sqlite kubernetes zookeeper consul")

// keyless are the schemes of URLs that hold no credentials, so that an @ in a path
// is what it seems to be, unless there is a colon or another @ before it.
var keyless = set("file gs s3 azblob dynamodb sqlite kubernetes http https")

func set(names string) map[string]bool {
	m := make(map[string]bool)
	for _, name := range strings.Fields(names) {
		m[name] = true
	}
	return m
}

// view is what one look at a URL tells.
type view struct {
	scheme string
	shown  string
	hidden []string
}

func (v *view) hide(s ...string) string {
	for _, s := range s {
		if s != "" && s != Hidden {
			v.hidden = append(v.hidden, s)
		}
	}
	return Hidden
}

// look takes a URL apart. It does not parse it: what needs redaction most is what
// cannot be parsed.
func look(raw string) *view {
	v := &view{}
	scheme, rest, found := strings.Cut(raw, "://")
	v.scheme = scheme
	switch {
	case raw == "":
		return v
	case found && !strings.ContainsAny(scheme, ":/?#@"):
		scheme += "://"
	default:
		scheme, rest, found = strings.Cut(raw, ":")
		if !found || !known[scheme] { // it may be a user's name, or a secret
			v.shown = v.hide(raw)
			return v
		}
		v.scheme, scheme = scheme, scheme+":"
		if v.scheme != "file" { // the one store whose URL may be relative
			v.shown = scheme + v.hide(rest)
			return v
		}
	}
	if ambiguous(v.scheme, rest) {
		v.shown = scheme + v.hide(rest)
		return v
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	v.shown = scheme + v.authority(authority) + path
	if hasQuery {
		v.shown += "?" + v.query(query)
	}
	if hasFragment {
		v.shown += "#" + v.hide(fragment)
	}
	return v
}

// ambiguous reports whether there is an @ that may end a password, or be in one, but
// is not where net/url looks for it.
func ambiguous(scheme, rest string) bool {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		return false
	}
	authority := rest[:end]
	rest, fragment, _ := strings.Cut(rest[end:], "#")
	path, query, _ := strings.Cut(rest, "?")
	if strings.Contains(fragment, "@") || strings.Contains(path, "@") && (!keyless[scheme] || strings.ContainsAny(authority, ":@")) {
		return true
	}
	for param := range strings.SplitSeq(query, "&") {
		// In the value of a parameter that is known, an @ is part of that.
		if name, _, _ := strings.Cut(param, "="); strings.Contains(param, "@") && !harmless(scheme, name) && !addresses[name] {
			return true
		}
	}
	return false
}

func (v *view) authority(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 || s[:at] == "user" || s[:at] == "user:password" { // as help texts have it
		return s
	}
	user, password, given := strings.Cut(s[:at], ":")
	if logins[v.scheme] && loginName.MatchString(user) {
		if given {
			user += ":" + v.hide(password)
		}
		return user + s[at:]
	}
	v.hide(s[:at]) // the name as well: alone, or parted wrongly, it may be a token
	return Hidden + s[at:]
}

// logins are the schemes of databases, in whose URLs a user's name is one and nothing else.
// To hide it would take it from their messages about permissions, and as a word from others.
var logins = set("postgres postgresql mysql mariadb mongodb mongodb+srv")

// loginName is what is taken for a name there.
var loginName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// query shows the parameters that are known to be harmless. Once there was one that
// is not, the name of the next may be the rest of a secret that holds an &.
func (v *view) query(s string) string {
	parts := strings.Split(s, "&")
	clean := true
	for i, part := range parts {
		name, value, given := strings.Cut(part, "=")
		switch {
		case harmless(v.scheme, name):
		case addresses[name]:
			before := len(v.hidden)
			parts[i] = name + "=" + v.address(value)
			clean = clean && len(v.hidden) == before
		case given && value != "" && clean:
			clean = false
			parts[i] = name + "=" + v.hide(value)
		default:
			clean = false
			parts[i] = v.hide(name, value)
		}
	}
	return strings.Join(parts, "&")
}

// plainHost is an address that cannot hold a secret.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9._-]*(:[0-9]+)?(/[A-Za-z0-9._-]*)?$`)

// address shows a parameter that is an address, with a scheme or without one.
func (v *view) address(value string) string {
	plain, err := url.QueryUnescape(value)
	if err != nil {
		return v.hide(value)
	}
	if plainHost.MatchString(plain) {
		return value
	}
	of := look(plain)
	if len(of.hidden) == 0 {
		return value
	}
	v.hide(value, plain)
	v.hide(of.hidden...)
	return of.shown
}

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
