package store

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/internal/clients"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// OpenError says why u cannot be opened: no retry can help, unless the opening was given up. It
// shows no secrets of u.
func OpenError(pkg string, u *url.URL, err error) error {
	if !errors.Is(err, open.ErrURL) && !errors.Is(err, clients.ErrEnded) {
		err = WrongURL(err)
	}
	return NotOpened(pkg, u, err)
}

// WrongURL is an error for what is wrong with a URL: it wraps open.ErrURL and
// leaderelection.ErrPermanent.
func WrongURL(err error) error {
	if errors.Is(err, leaderelection.ErrPermanent) {
		return badURL{err}
	}
	return Wrong("%w", badURL{err})
}

type badURL struct{ error }

func (b badURL) Unwrap() error      { return b.error }
func (badURL) Is(target error) bool { return target == open.ErrURL }

// NotOpened says why u was not opened: like OpenError, but err may be temporary.
func NotOpened(pkg string, u *url.URL, err error) error {
	return complete{fmt.Errorf("leaderelection/%s: opening %s: %w", pkg, redact.URL(u.String()), redact.Error(err, u.String()))}
}

// Hosts are the hosts of a URL that may name several, each with a port: this one where
// it names none.
func Hosts(u *url.URL, port string) (hosts []string, err error) {
	for host := range strings.SplitSeq(u.Host, ",") {
		at := &url.URL{Host: host}
		if at.Hostname() == "" {
			return nil, fmt.Errorf("a host of %q has no name", u.Host)
		}
		if at.Port() == "" {
			host = strings.TrimSuffix(host, ":") + ":" + port
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

// Params are the parameters of a store's URL. Take each by its name, then call Rest, which reports
// what is wrong with any of them.
type Params struct {
	values url.Values
	names  []string // that were asked for
	others string   // that were asked for by Take
	err    error    // the first that was wrong
}

// ParseParams reads u's query. It refuses a fragment, since that is most often a # that must be
// escaped.
func ParseParams(u *url.URL) (*Params, error) {
	if u.Fragment != "" {
		return nil, errors.New("a # in a name must be written %23")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	return &Params{values: values}, nil
}

// Wrong notes what is wrong with a parameter. Only the first note is kept.
func (p *Params) Wrong(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// Strings takes a parameter that may be given several times.
func (p *Params) Strings(name string) []string {
	values := p.values[name]
	delete(p.values, name)
	p.names = append(p.names, name)
	return values
}

// String takes a parameter that has one value; empty if it is not given.
func (p *Params) String(name string) string {
	p.names = append(p.names, name)
	return p.value(name)
}

func (p *Params) value(name string) string {
	values := p.values[name]
	delete(p.values, name)
	switch {
	case len(values) > 1:
		p.Wrong("the parameter %q is given %d times", name, len(values))
	case len(values) == 1 && values[0] == "":
		p.Wrong("the parameter %q has no value", name)
	case len(values) == 1:
		return values[0]
	}
	return ""
}

// OneOf takes a parameter that has one of these values; empty if it is not given.
func (p *Params) OneOf(name string, values ...string) string {
	v := p.String(name)
	if v != "" && !slices.Contains(values, v) {
		p.Wrong("the parameter %q is %q; want %s", name, v, strings.Join(values, " or "))
	}
	return v
}

// Bool takes a parameter that is true or false; false if it is not given.
func (p *Params) Bool(name string) bool {
	v := p.String(name)
	if v == "" {
		return false
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		p.Wrong("the parameter %q is %q; want true or false", name, v)
	}
	return b
}

// Int takes a number within these bounds; 0 if it is not given.
func (p *Params) Int(name string, least, most int) int {
	v := p.String(name)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		p.Wrong("the parameter %q is %q; want a number from %d to %d", name, v, least, most)
		return 0
	}
	return n
}

// Duration takes a duration above zero; 0 if it is not given.
func (p *Params) Duration(name string) time.Duration {
	v := p.String(name)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		p.Wrong("the parameter %q is %q; want a duration such as 500ms", name, v)
		return 0
	}
	return d
}

// Endpoint takes the URL of an HTTP server, or nil if it is not given. It must not have
// credentials.
func (p *Params) Endpoint(name string) *url.URL {
	v := p.String(name)
	if v == "" {
		return nil
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		p.Wrong("the parameter %q is %q; want a URL such as http://127.0.0.1:8000", name, v)
		return nil
	case u.User != nil:
		p.Wrong("credentials do not belong in the parameter %q: they come from the environment", name)
		return nil
	}
	return u
}

// Take takes those that are wanted, whatever their names. Said is what Rest calls them.
func (p *Params) Take(said string, wanted func(name string) bool) url.Values {
	taken := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		if wanted(name) {
			taken.Set(name, p.value(name))
		}
	}
	p.others = " and " + said
	return taken
}

// Rest reports what is wrong with the parameters taken, or that there are others.
func (p *Params) Rest() error {
	if p.err != nil {
		return p.err
	}
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		return fmt.Errorf("there is no parameter %q; there are %s%s", name, strings.Join(slices.Compact(slices.Sorted(slices.Values(p.names))), ", "), p.others)
	}
	return nil
}

// At names servers, given with commas between them, for a Place: without a scheme, and without
// what stands before an @.
func At(servers string) string {
	var at []string
	for server := range strings.SplitSeq(servers, ",") {
		if _, host, schemed := strings.Cut(server, "://"); schemed {
			server = host
		}
		if server = server[strings.LastIndexByte(server, '@')+1:]; server != "" {
			at = append(at, server)
		}
	}
	if len(at) == 0 {
		return ""
	}
	return " at " + strings.Join(at, ",")
}
