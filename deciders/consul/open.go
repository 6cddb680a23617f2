package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Open returns a handle on the election that u names, with a client of its own, whose
// connections Close closes:
//
//	consul://127.0.0.1:8500/elections/web
//	consul:///elections/web                  the agent of CONSUL_HTTP_ADDR, or that of this machine
//	consul://:TOKEN@host/elections/web?tls_ca=ca.pem
//
// The default port is 8500, with TLS 8501. Query parameters, all optional:
//
//	datacenter=NAME   Options.Datacenter
//	namespace=NAME    Options.Namespace
//	partition=NAME    Options.Partition
//	token_file=FILE   the ACL token, read again for each request
//	feed_wait=50s     Options.FeedWait
//	tls=true          with TLS, which checks the agent's certificate; the three below imply it
//	tls_ca=FILE       the authorities of that certificate, PEM (else the system's)
//	tls_cert=FILE     a client certificate, PEM
//	tls_key=FILE      its key, PEM
//
// The files are read again for each connection, so renewed certificates need no restart. Without a
// token in the URL, it comes from CONSUL_HTTP_TOKEN, or from the file that CONSUL_HTTP_TOKEN_FILE
// names, as with the consul command. Proxies that the environment names are not used. Other
// parameters are errors. Open does no network I/O.
func Open(_ context.Context, u *url.URL) (*Decider, error) {
	d, err := open(u, os.Getenv)
	if err != nil {
		return nil, store.OpenError("consul", u, err)
	}
	return d, nil
}

func open(u *url.URL, getenv func(string) string) (*Decider, error) {
	key := strings.TrimPrefix(u.Path, "/")
	switch {
	case u.Scheme != "consul":
		return nil, fmt.Errorf("the scheme is %q; want consul://host:8500/key", u.Scheme)
	case u.Opaque != "" || key == "":
		return nil, errors.New("no key is named: consul://host:8500/key")
	case strings.Contains(u.EscapedPath(), "@"):
		return nil, errors.New("a / in a token must be written %2F, and an @ in a key %40") // else parts of it would be shown
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	token := credentials(p, u, getenv)
	opts := &Options{Token: token, Datacenter: p.String("datacenter"), Namespace: p.String("namespace"), Partition: p.String("partition"), FeedWait: p.Duration("feed_wait")}
	secure, files := p.TLS()
	agent := u.Host
	if agent == "" {
		agent = cmp.Or(getenv("CONSUL_HTTP_ADDR"), "127.0.0.1")
	}
	if !strings.Contains(agent, "://") {
		agent = "http://" + agent
	}
	address, err := parseAddress(agent)
	if err != nil {
		return nil, err
	}
	if secure {
		address.Scheme = "https"
	}
	if address.Port() == "" {
		address.Host = strings.TrimSuffix(address.Host, ":") + map[string]string{"http": ":8500", "https": ":8501"}[address.Scheme]
	}
	if err := p.Rest(); err != nil {
		return nil, err
	}
	client := &http.Client{Transport: newTransport(files)}
	d := NewDecider(client, address.String(), key, opts)
	d.close = client.CloseIdleConnections
	d.election.Drop = func(time.Time) { client.CloseIdleConnections() }
	return d, d.election.Wrong
}

// credentials takes the token: of the URL, or a file, or the environment.
func credentials(p *store.Params, u *url.URL, getenv func(string) string) func() (string, error) {
	token, given := u.User.Password()
	file := p.String("token_file")
	switch {
	case u.User.Username() != "" || u.User != nil && token == "":
		p.Wrong("a token stands before the host as a password without a user: a colon, the token, and an @")
	case given && file != "":
		p.Wrong("there is a token before the host, and one in token_file")
	}
	if !given && file == "" {
		if token = getenv("CONSUL_HTTP_TOKEN"); token == "" {
			file = getenv("CONSUL_HTTP_TOKEN_FILE")
		}
	}
	switch {
	case file != "":
		return func() (string, error) {
			text, err := os.ReadFile(file)
			return strings.TrimSpace(string(text)), err
		}
	case token != "":
		return func() (string, error) { return token, nil }
	}
	return nil
}

// newTransport makes one whose connections with TLS go by the files as they are then.
func newTransport(files store.TLSFiles) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{
		DialContext: dialer.DialContext,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialer.Timeout)
			defer cancel()
			return files.Dial(ctx, nil, network, address)
		},
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
	}
}
