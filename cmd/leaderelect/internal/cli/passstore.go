package cli

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/redact"
)

// passStore reports whether a command finds the store's URL in its environment, which
// other programs of the same user can read, and which ends up in logs. Its zero value
// leaves that to the URL: one with a password is not passed on.
type passStore struct{ yes, no bool }

func (p *passStore) flag(f *pflag.FlagSet) {
	f.Var(p, "pass-store", "put the store's URL into the command's environment, as LEADERELECT_STORE (default: unless it has a password)")
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

// hasSecret reports whether there is anything in a URL that is not for everybody.
func hasSecret(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return true
	}
	if _, password := u.User.Password(); !password && store.Kind(raw) != "nats" { // where a lone name may be a token
		u.User = nil
	}
	return strings.Contains(redact.URL(u.String()), redact.Hidden)
}
