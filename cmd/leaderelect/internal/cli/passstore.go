package cli

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// passStore reports whether a command finds the store's URL in its environment, which
// other programs of the same user can read, and which ends up in logs. Its zero value
// leaves that to the URL: one with a password is not passed on.
type passStore struct{ yes, no bool }

func (p *passStore) flag(f *pflag.FlagSet) {
	f.Var(p, "pass-store", "give the command the store's URL (LEADERELECT_STORE) even if it has a password, and the variables that have the password, such as MYSQL_PWD (default: neither)")
	f.Lookup("pass-store").NoOptDefVal = "true"
}

// String implements pflag.Value.
func (p *passStore) String() string {
	switch {
	case p.yes:
		return "true"
	case p.no:
		return "false"
	}
	return ""
}

// Set implements pflag.Value.
func (p *passStore) Set(s string) error {
	yes, err := strconv.ParseBool(s)
	if err == nil {
		p.yes, p.no = yes, !yes
	}
	return err
}

// Type implements pflag.Value.
func (p *passStore) Type() string { return "bool" }

// store is what the environment has of the store's URL: empty for nothing.
func (p *passStore) store(raw string) string {
	if p.no || !p.yes && hasSecret(raw) {
		return ""
	}
	return raw
}

// of is what a command finds of the store's URL in its environment, and the variables of this
// program's environment that it does not find: what a URL's password is kept in as well as in
// the URL.
func (p *passStore) of(raw string) (url string, withheld []string) {
	if !p.yes {
		withheld = store.Secrets(raw)
	}
	return p.store(raw), withheld
}

// hasSecret reports whether there is anything in a URL that is not for everybody.
func hasSecret(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return true
	}
	if _, password := u.User.Password(); !password && store.Kind(raw) != "nats" { // its lone name may be a token
		u.User = nil
	}
	return strings.Contains(redact.URL(u.String()), redact.Hidden)
}
