package dial

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fromContext fills in what t does not say itself from a saved context of the
// nats command line: ~/.config/nats/context/NAME.json.
//
// A context may ask for more than is read here. Such a one is refused: leaving
// out half of what somebody wrote about how to connect would connect elsewhere,
// or as somebody else.
func (t *Target) fromContext(name string) error {
	file, err := contextFile(name)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("context %q: %w", name, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("context %q: %s: %w", name, file, err)
	}
	take := func(field string) string {
		s, _ := fields[field].(string)
		delete(fields, field)
		return s
	}
	servers := take("url")
	if len(t.servers) == 0 && servers != "" {
		t.servers = strings.Split(servers, ",")
	}
	saved := login{
		creds: home(take("creds")), nkey: home(take("nkey")),
		ca: home(take("ca")), cert: home(take("cert")), certKey: home(take("key")),
		user: take("user"), password: take("password"), token: take("token"),
	}
	if t.creds+t.nkey+t.user+t.token != "" { // the URL says as whom
		saved.creds, saved.nkey, saved.user, saved.password, saved.token = t.creds, t.nkey, t.user, t.password, t.token
	}
	saved.ca = cmp.Or(t.ca, saved.ca)
	if t.cert != "" {
		saved.cert, saved.certKey = t.cert, t.certKey
	}
	saved.inboxPrefix = cmp.Or(t.inboxPrefix, take("inbox_prefix"))
	t.login = saved
	domain, prefix := take("jetstream_domain"), take("jetstream_api_prefix")
	if t.domain == "" {
		t.domain, t.apiPrefix = domain, prefix
	}
	return onlyEmpty(name, fields)
}

// onlyEmpty refuses fields that are set and were not read. Those that only
// describe the context are let pass.
func onlyEmpty(name string, fields map[string]any) error {
	var more []string
	for field, v := range fields {
		switch field {
		case "description", "jetstream_event_prefix", "color_scheme":
			continue
		}
		if v != nil && v != "" && v != false && v != 0.0 {
			more = append(more, field)
		}
	}
	if len(more) == 0 {
		return nil
	}
	slices.Sort(more)
	return fmt.Errorf("context %q has %s, which this library does not know: make the connection yourself, and use NewDecider", name, strings.Join(more, ", "))
}

// contextFile is where the nats command line keeps a context.
func contextFile(name string) (string, error) {
	if name != filepath.Base(name) || name == "." || name == ".." {
		return "", fmt.Errorf("context %q: no name of a context", name)
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		if dir = home("~/.config"); !filepath.IsAbs(dir) {
			return "", errors.New("context: there is no home directory")
		}
	}
	return filepath.Join(dir, "nats", "context", name+".json"), nil
}

// home replaces a leading ~ by the home directory.
func home(path string) string {
	rest, tilde := strings.CutPrefix(path, "~/")
	dir, err := os.UserHomeDir()
	if !tilde || err != nil {
		return path
	}
	return filepath.Join(dir, rest)
}
