package natskv

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
	"github.com/c8e606e4/leaderelection/internal/clients"
)

// Open connects to NATS and returns a Decider that owns the connection: Close it.
// The URL is
//
//	nats://[user:password@|token@]host[:port]/bucket/key?parameter=value&...
//
// The key may have slashes. All parameters are optional. Unknown and repeated ones are errors:
//
//	server        a further server's host:port; may be given several times
//	context       a context of the nats command line, for whatever the URL does
//	              not say; you may then leave out the host: nats:///b/k?context=prod
//	creds         a file with a user's JWT and seed
//	nkey          a file with a user's nkey seed
//	tls           true: the connection must be encrypted; the three below imply it
//	tls_ca        a file with the authorities to trust in place of the system's
//	tls_cert      a file with this client's certificate, and
//	tls_key       one with its key
//	inbox_prefix  what the subjects of answers begin with, in place of _INBOX
//	domain        the JetStream domain that has the bucket
//	create        true: make the bucket if it is missing, with
//	replicas      1 to 5 copies (default 1; take 3 in a cluster),
//	storage       file (default) or memory, and
//	description   a text for it
//
// Open fails if it reaches no server before ctx ends, or if a server refuses the user (an
// ErrPermanent). Later a lost connection is always restored, even if a server refuses the user for
// a while. Each time the files are read again, and of a context the user, the password and the
// token. nats.go keeps the public key of an nkey: another key needs a restart. The first call of
// the Decider says what is wrong with the bucket.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, store.NotOpened("natskv", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (*Decider, error) {
	t, err := parse(u)
	if err == nil {
		err = checkNames(t.bucket, t.key)
	}
	if err != nil {
		return nil, store.WrongURL(err)
	}
	nc, done, err := clients.Open(ctx, fmt.Sprint(t.servers, t.secure, t.login), func(ctx context.Context) (*nats.Conn, func() error, error) {
		nc, err := t.connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		return nc, func() error { nc.Close(); return nil }, nil
	})
	if err != nil {
		return nil, err
	}
	js, err := t.jetStream(nc)
	if err != nil {
		_ = done()
		return nil, store.WrongURL(err)
	}
	d := NewDecider(js, t.bucket, t.key, &Options{Create: t.create})
	d.close = done
	return d, nil
}

// ConnectOptions returns options for nats.Connect that elections need. Yours may follow. With them
// the connection never gives up. By itself nats.go stops for good after sixty attempts, and when a
// server has refused the user twice, for example while a password is changed. It also leaves a
// silent server after four seconds instead of six minutes, and waits for a second between attempts.
func ConnectOptions() []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(time.Second),
		nats.PingInterval(silence),
		nats.MaxPingsOutstanding(1),
		nats.FlusherTimeout(2 * silence),
	}
}

// silence is how long a server may leave a PING unanswered.
const silence = 2 * time.Second

// login is how to reach the servers, and as whom.
type login struct {
	creds, nkey, ca, cert, certKey, inboxPrefix string
	user, password, token                       string
}

// now is the login as a context says it now, which may have another password. One that cannot be read
// leaves it as it was: somebody may be about to write it.
func (t *target) now() login {
	if t.again != nil {
		if now, err := t.again(); err == nil {
			return now.login
		}
	}
	return t.login
}

// options is the login as nats.go takes it.
func (t *target) options() ([]nats.Option, error) {
	l := &t.login
	o := append(ConnectOptions(),
		nats.Name("leaderelection"),
		// What goes wrong is said by the calls that it befalls.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	for _, file := range []string{l.creds, l.nkey, l.ca, l.cert, l.certKey} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return nil, err
		}
	}
	if t.secure {
		o = append(o, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	if l.creds != "" {
		o = append(o, nats.UserCredentials(l.creds))
	}
	if l.nkey != "" {
		seed, err := nats.NkeyOptionFromSeed(l.nkey)
		if err != nil {
			return nil, fmt.Errorf("nkey %s: %w", l.nkey, err)
		}
		o = append(o, seed)
	}
	if l.ca != "" {
		o = append(o, nats.RootCAs(l.ca))
	}
	if (l.cert == "") != (l.certKey == "") {
		return nil, errors.New("tls_cert and tls_key go together")
	}
	if l.cert != "" {
		o = append(o, nats.ClientCert(l.cert, l.certKey))
	}
	if l.user != "" {
		o = append(o, nats.UserInfoHandler(func() (string, string) { l := t.now(); return l.user, l.password }))
	}
	if l.token != "" {
		o = append(o, nats.TokenHandler(func() string { return t.now().token }))
	}
	if l.inboxPrefix != "" {
		o = append(o, nats.CustomInboxPrefix(l.inboxPrefix))
	}
	return o, nil
}

// connect connects to one of the servers, for no longer than ctx lasts.
func (t *target) connect(ctx context.Context) (*nats.Conn, error) {
	o, err := t.options()
	if err != nil {
		return nil, store.WrongURL(err)
	}
	c, err := within.Do(ctx, make(within.Calls, 1), func() (connection, error) {
		nc, err := nats.Connect(strings.Join(t.servers, ","), o...)
		return connection{nc}, err
	})
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, context.Cause(ctx)
	case slices.ContainsFunc(refusals, func(is error) bool { return errors.Is(err, is) }):
		return nil, store.Wrong("%w", err)
	}
	return c.Conn, err
}

// refusals are what a server says that does not take the user.
var refusals = []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired}

// connection is one that within.Do closes if it comes too late: nats.Connect knows no
// ctx, and gives up by its own timeout.
type connection struct{ *nats.Conn }

// Close implements io.Closer.
func (c connection) Close() error {
	c.Conn.Close()
	return nil
}

// jetStream is the API of the target's domain.
func (t *target) jetStream(nc *nats.Conn) (jetstream.JetStream, error) {
	switch {
	case t.domain != "" && t.apiPrefix != "":
		return nil, errors.New("a JetStream domain and an API prefix: only one of them can be")
	case t.domain != "":
		return jetstream.NewWithDomain(nc, t.domain)
	case t.apiPrefix != "":
		return jetstream.NewWithAPIPrefix(nc, t.apiPrefix)
	}
	return jetstream.New(nc)
}

// target is what a URL says.
type target struct {
	bucket, key string
	create      *jetstream.KeyValueConfig // nil: the bucket is there

	servers []string
	login
	secure            bool // the connection must be encrypted
	domain, apiPrefix string

	again func() (*target, error) // reads the context again; nil: there is none
}

// parse reads a URL. It does no I/O but for the files that it names.
func parse(u *url.URL) (*target, error) {
	if u.Scheme != "nats" {
		return nil, fmt.Errorf("the scheme is %q, want nats", u.Scheme)
	}
	if u.Opaque != "" {
		return nil, errors.New("want nats://host:port/bucket/key?parameter=value")
	}
	t := &target{}
	var found bool
	if t.bucket, t.key, found = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/"); !found || t.bucket == "" || t.key == "" {
		return nil, fmt.Errorf("the path is %q, want /bucket/key", u.Path)
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	if u.Host != "" {
		t.servers = append(t.servers, "nats://"+u.Host)
	}
	for _, host := range p.Strings("server") {
		t.servers = append(t.servers, "nats://"+host)
	}
	t.creds, t.nkey = p.String("creds"), p.String("nkey")
	var files store.TLSFiles
	t.secure, files = p.TLS()
	t.ca, t.cert, t.certKey = files.CA, files.Cert, files.Key
	t.inboxPrefix, t.domain = p.String("inbox_prefix"), p.String("domain")
	if password, both := u.User.Password(); both {
		t.user, t.password = u.User.Username(), password
	} else {
		t.token = u.User.Username()
	}
	saved := p.String("context")
	t.bucketParameters(p)
	if err := p.Rest(); err != nil {
		return nil, err
	}
	if saved != "" {
		said := *t
		again := func() (*target, error) { t := said; return &t, t.fromContext(saved) }
		if t, err = again(); err != nil {
			return nil, err
		}
		t.again = again
	}
	if len(t.servers) == 0 {
		return nil, errors.New("no host: name one, or a context")
	}
	return t, nil
}

// bucketParameters reads those that say how to make the bucket.
func (t *target) bucketParameters(p *store.Params) {
	create, replicas, storage, description := p.Bool("create"), p.Int("replicas", 1, 5), p.OneOf("storage", "file", "memory"), p.String("description")
	if !create {
		if replicas != 0 || storage+description != "" {
			p.Wrong("replicas, storage and description are for a bucket to be made: give create=true as well")
		}
		return
	}
	t.create = &jetstream.KeyValueConfig{Replicas: max(replicas, 1), Description: description}
	if storage == "memory" {
		t.create.Storage = jetstream.MemoryStorage
	}
}

// fromContext fills in what t does not say itself from a saved context of the
// nats command line: ~/.config/nats/context/NAME.json.
//
// A context may ask for more than is read here. Such a one is refused: leaving
// out half of what somebody wrote about how to connect would connect elsewhere,
// or as somebody else.
func (t *target) fromContext(name string) error {
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
