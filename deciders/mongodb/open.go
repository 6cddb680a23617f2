package mongodb

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/c8e606e4/leaderelection/deciders/internal/lines"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/clients"
)

// driverOptions are the connection string options that are handed to the driver as they
// are. Those about read and write concerns are not among them: the Decider has its own.
var driverOptions = []string{
	"appName", "authMechanism", "authMechanismProperties", "authSource", "compressors", "connectTimeoutMS",
	"directConnection", "heartbeatFrequencyMS", "loadBalanced", "maxConnecting", "maxIdleTimeMS", "maxPoolSize",
	"minPoolSize", "replicaSet", "retryReads", "retryWrites", "serverMonitoringMode", "serverSelectionTimeoutMS",
	"srvMaxHosts", "srvServiceName", "ssl", "tls", "tlsAllowInvalidCertificates", "tlsAllowInvalidHostnames",
	"tlsDisableOCSPEndpointCheck", "tlsInsecure",
	"zlibCompressionLevel", "zstdCompressionLevel",
}

// minPoolSize is how many connections Open's client keeps ready: the feed's getMore is
// always out on one, and a standby's first write shall not wait for another.
const minPoolSize = 2

// Open returns the election that u names, with a client of its own, which Close
// disconnects:
//
//	mongodb://user:password@host:27017,host:27017/database/collection/election?replicaSet=rs0
//	mongodb+srv://user:password@cluster.example.net/database/collection/election
//
// The election's name is all that follows the collection, even slashes. All query parameters are
// optional: MongoDB's own connection string options, except those about read and write concerns,
// and those below. By default authSource is admin, since the path does not name it here, minPoolSize is
// 2, see the package comment, and retryReads and retryWrites are false.
//
//	feed_wait=10m          Options.FeedWait
//	announcements=NAME     Options.Announcements; the collection is made if it is missing
//	tls_ca=FILE            the authorities of the servers' certificates, PEM (else the system's)
//	tls_cert=FILE          a client certificate, PEM
//	tls_key=FILE           its key, PEM
//
// Each of the three files implies tls=true. They are read for each connection, so you can renew
// certificates. Use them instead of tlsCAFile and tlsCertificateKeyFile, which the driver reads
// once. Other parameters are errors. Credentials are those of u, or what authMechanism finds
// (MONGODB-AWS the environment, MONGODB-X509 the certificate). Open does I/O only to look up a +srv
// name and to make announcements.
//
// With directConnection=true all calls fail while the server is a secondary. Some of MongoDB's
// connection strings are not URLs. Give the last of several hosts its port: "a:1,b:27017", not "a:1,b".
// Name hosts that have IPv6 addresses only. For a Unix domain socket use NewDecider.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	p, err := parse(u)
	if err != nil {
		return nil, store.OpenError("mongodb", u, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, store.NotOpened("mongodb", u, err)
	}
	opts := options.Client().ApplyURI(p.uri)
	// Not if u allows one connection only: the driver refuses less than the minimum.
	if most := opts.MaxPoolSize; opts.MinPoolSize == nil && (most == nil || *most == 0 || *most >= minPoolSize) {
		opts.SetMinPoolSize(minPoolSize)
	}
	// The campaign retries. With a deadline the driver would do so until then.
	if opts.RetryReads == nil {
		opts.SetRetryReads(false)
	}
	if opts.RetryWrites == nil {
		opts.SetRetryWrites(false)
	}
	dial := dialer{lines: &lines.Lines{}, files: p.files}
	if p.files.None() {
		// The driver's own TLS, if any.
	} else if _, err := p.files.Load(); err != nil {
		return nil, store.OpenError("mongodb", u, err)
	} else {
		dial.base = cmp.Or(opts.TLSConfig, &tls.Config{MinVersion: tls.VersionTLS12})
		opts.SetTLSConfig(nil)
	}
	opts.SetDialer(dial)
	secondary := new(atomic.Bool)
	if opts.Direct != nil && *opts.Direct {
		opts.SetServerMonitor(&event.ServerMonitor{ServerDescriptionChanged: func(e *event.ServerDescriptionChangedEvent) {
			secondary.Store(e.NewDescription.Kind == "RSSecondary")
		}})
	}
	client, done, err := clients.Open(ctx, fmt.Sprint(p.uri, p.files), func(context.Context) (own, func() error, error) {
		client, err := mongo.Connect(opts)
		if err != nil {
			return own{}, nil, err
		}
		return own{client, dial.lines, secondary}, func() error { return disconnect(client) }, nil
	})
	if err != nil {
		return nil, store.OpenError("mongodb", u, err)
	}
	d := NewDecider(client.Client, p.database, p.collection, p.election, &p.opts)
	d.close, d.election.Drop, d.b.secondary = done, client.Drop, client.secondary
	d.election.Place += store.At(u.Host)
	if p.opts.Announcements != "" {
		if err := d.CreateAnnouncements(ctx); err != nil {
			_ = d.Close()
			return nil, err
		}
	}
	return d, nil
}

// parsed is what a URL says.
type parsed struct {
	uri                            string // the driver's
	database, collection, election string
	files                          store.TLSFiles
	opts                           Options
}

// own is a client that Open has made. It keeps several connections, each of which may have died
// silently.
type own struct {
	*mongo.Client
	*lines.Lines
	secondary *atomic.Bool // it is connected directly to a server, and that is one
}

// dialer lists the connections. Unless base is nil it connects with TLS, by the files as they are
// then: the driver reads its own once.
type dialer struct {
	lines *lines.Lines
	files store.TLSFiles
	base  *tls.Config
}

// DialContext implements options.ContextDialer.
func (d dialer) DialContext(ctx context.Context, network, address string) (c net.Conn, err error) {
	if d.base == nil {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
	} else {
		c, err = d.files.Dial(ctx, d.base, network, address)
	}
	if err != nil {
		return nil, err
	}
	return d.lines.Add(c), nil
}

func parse(u *url.URL) (*parsed, error) {
	p := &parsed{}
	if u.Scheme != "mongodb" && u.Scheme != "mongodb+srv" {
		return nil, fmt.Errorf("the scheme is %q; want mongodb://host/database/collection/election", u.Scheme)
	}
	path := strings.SplitN(strings.TrimPrefix(u.Path, "/"), "/", 3)
	if u.Host == "" || len(path) != 3 || slices.Contains(path, "") {
		return nil, errors.New("want mongodb://host/database/collection/election")
	}
	q, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	p.database, p.collection, p.election = path[0], path[1], path[2]
	driver := q.Take("MongoDB's "+strings.Join(driverOptions, ", ")+", whose others have no effect here", func(name string) bool {
		return slices.ContainsFunc(driverOptions, func(o string) bool { return strings.EqualFold(o, name) })
	})
	p.files = q.TLSFiles()
	for name, values := range driver {
		switch strings.ToLower(name) {
		case "tls", "ssl":
			if slices.Contains(values, "false") {
				p.files.Exclude(q, name+"=false")
			}
		case "tlsinsecure":
			p.files.Exclude(q, name)
		}
	}
	p.opts = Options{FeedWait: q.Duration("feed_wait"), Announcements: q.String("announcements")}
	p.uri = (&url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, Path: "/", RawQuery: driver.Encode()}).String()
	return p, q.Rest()
}
