package mongodb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// driverOptions are the connection string options that are handed to the driver as they
// are. Those about read and write concerns are not among them: the Decider has its own.
var driverOptions = []string{
	"appName", "authMechanism", "authMechanismProperties", "authSource", "compressors", "connectTimeoutMS",
	"directConnection", "heartbeatFrequencyMS", "loadBalanced", "maxConnecting", "maxIdleTimeMS", "maxPoolSize",
	"minPoolSize", "replicaSet", "retryReads", "retryWrites", "serverMonitoringMode", "serverSelectionTimeoutMS",
	"srvMaxHosts", "srvServiceName", "ssl", "tls", "tlsAllowInvalidCertificates", "tlsAllowInvalidHostnames",
	"tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateKeyFilePassword", "tlsDisableOCSPEndpointCheck", "tlsInsecure",
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
// The election's name is all that follows the collection; a slash in it is part of it.
// Query parameters, all optional: MongoDB's own connection string options, save those
// about read and write concerns (authSource is admin unless it is given: the path does
// not name it here, and minPoolSize is 2, see the package comment), and
//
//	linearizable=true      Options.Linearizable
//	await_time=10m         Options.AwaitTime
//	announcements=NAME     Options.Announcements; the collection is made where it is missing
//
// Open itself does no I/O, but to look up a +srv name and to make announcements. Any
// other parameter is an error, and so is whatever makes a URL useless. Credentials are
// those of u, or what authMechanism finds (MONGODB-AWS the environment, MONGODB-X509 the
// certificate).
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	p, err := parse(u)
	if err != nil {
		return nil, store.OpenError("mongodb", u, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, store.NotOpened("mongodb", u, err)
	}
	opts := options.Client().ApplyURI(p.uri)
	// Not where u allows one connection only: the driver refuses less than the minimum.
	if most := opts.MaxPoolSize; opts.MinPoolSize == nil && (most == nil || *most == 0 || *most >= minPoolSize) {
		opts.SetMinPoolSize(minPoolSize)
	}
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, store.OpenError("mongodb", u, err)
	}
	d := NewDecider(client, p.database, p.collection, p.election, &p.opts)
	d.owned = true
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
	opts                           Options
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
	p.opts = Options{Linearizable: q.Bool("linearizable"), AwaitTime: q.Duration("await_time"), Announcements: q.String("announcements")}
	p.uri = (&url.URL{Scheme: u.Scheme, User: u.User, Host: u.Host, Path: "/", RawQuery: driver.Encode()}).String()
	return p, q.Rest()
}
